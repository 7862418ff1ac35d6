"""The n best answers and the score of no answer, against a plain implementation."""

import random

import numpy as np
import pytest

from bert_tf import BertTokenizer
from bert_tf.inputs.columns import TextColumns
from bert_tf.tasks.question_answering.preprocessor import QuestionAnsweringPreprocessor
from tests.tasks.question_answering import plain_squad

LENGTHS = {"max_length": 24, "doc_stride": 6, "max_query_length": 8}
QUESTIONS = 60


def selections(tokenizer, questions, contexts, logits_of_windows, **options):
    """What is selected; `logits_of_windows` makes the logits of so many windows."""
    options = {"null_score_diff_threshold": 0.0, **options}
    preprocessor = QuestionAnsweringPreprocessor(tokenizer=tokenizer, **LENGTHS, **options)
    columns = TextColumns(
        np.array([text.encode() for text in texts], object) for texts in (questions, contexts)
    )
    rows = preprocessor.encode(columns)
    logits = logits_of_windows(rows)
    return preprocessor.select(logits, rows, columns), logits, rows


def random_selections(tiny_vocabulary):
    """For each random case: what was selected, and what the plain implementation says."""
    tokenizer = BertTokenizer(tiny_vocabulary)
    source, noise = random.Random(7), np.random.default_rng(7)

    # Few different values, so that many scores are equal; padding that must not count.
    def make_logits(rows):
        logits = noise.integers(-4, 5, [len(rows), 2, 24]) / 2
        for values, length in zip(logits, rows.lengths()):
            values[:, length:] = 9.0
        return logits

    for n_best_size in (1, 2, 20):
        for max_answer_length in (2, 6, 30):
            for version_2 in (False, True):
                questions = [plain_squad.random_text(source, 3) for _ in range(QUESTIONS)]
                contexts = [
                    plain_squad.random_text(source, source.choice((0, 2, 8, 30, 50)))
                    for _ in questions
                ]
                options = {"n_best_size": n_best_size, "max_answer_length": max_answer_length}
                found, logits, rows = selections(
                    tokenizer,
                    [text for text, _ in questions],
                    [text for text, _ in contexts],
                    make_logits,
                    allow_no_answer=version_2,
                    **options,
                )
                for number, (_, question) in enumerate(questions):
                    text, context = contexts[number]
                    pieces = [[piece for piece, _, _ in part] for part in (question, context)]
                    plain = plain_squad.windows(*pieces, *LENGTHS.values())
                    mine = logits[rows.examples == number]
                    expected = plain_squad.answers(
                        text, context, plain, mine, version_2=version_2, **options
                    )
                    yield found[number], expected, text, version_2


def test_answers_and_scores_are_the_plain_ones(tiny_vocabulary):
    without_span = total = 0
    for selection, (n_best, difference), text, version_2 in random_selections(tiny_vocabulary):
        rows = [(c.text, c.start_logit, c.end_logit) for c in selection.n_best]
        assert rows == [row[:3] for row in n_best]
        np.testing.assert_allclose(
            [c.probability for c in selection.n_best], [row[3] for row in n_best], rtol=1e-12
        )
        assert selection.score_difference == difference
        assert all(text[c.start : c.end] == c.text for c in selection.n_best)
        spans = [c for c in selection.n_best if c.text]
        is_null = not spans or (version_2 and difference > 0)
        if is_null:
            assert selection.answer[:3] == ("", 0, 0)
        else:
            best = spans[0]
            assert selection.answer == (best.text, best.start, best.end, best.probability)
        without_span += not spans
        total += 1
    assert 0 < without_span < total / 2


def selected(tiny_vocabulary, context="good film", **options):
    def make_logits(rows):
        logits = np.zeros([1, 2, 24])
        logits[0, 0, 3], logits[0, 1, 4] = 2.0, 3.0  # "good film": 5
        logits[0, :, 0] = 3.0  # no answer: 6
        return logits

    options = {"n_best_size": 20, "max_answer_length": 30, "allow_no_answer": False, **options}
    tokenizer = BertTokenizer(tiny_vocabulary)
    ((selection,), _, _) = selections(tokenizer, ["x"], [context], make_logits, **options)
    return selection


@pytest.mark.parametrize("threshold, text", [(0.0, ""), (0.5, ""), (1.0, "good film")])
def test_no_answer_wins_above_the_threshold(tiny_vocabulary, threshold, text):
    options = {"allow_no_answer": True, "null_score_diff_threshold": threshold}
    chosen = selected(tiny_vocabulary, **options)
    assert chosen.score_difference == 1.0 and chosen.answer.text == text
    assert selected(tiny_vocabulary).answer.text == "good film"


@pytest.mark.parametrize("allowed", [False, True])
def test_no_span_at_all_is_no_answer(tiny_vocabulary, allowed):
    chosen = selected(tiny_vocabulary, "", allow_no_answer=allowed, n_best_size=1)
    assert chosen.score_difference == 6.0 and chosen.answer[:3] == ("", 0, 0)
    assert [candidate.text for candidate in chosen.n_best] == [""]


@pytest.mark.parametrize("n_best_size", [1, 2])
def test_the_best_span_is_found_whatever_the_other_tokens_have(tiny_vocabulary, n_best_size):
    """The question, `[CLS]` and `[SEP]` have the best starts and ends; in the context the best end
    is before the best start.
    """

    def make_logits(rows):
        logits = np.zeros([1, 2, 24])
        logits[0, :, :3] = logits[0, :, 6] = 9.0
        logits[0, 0, 3:6] = 1.0, 2.0, 4.0
        logits[0, 1, 3:6] = 5.0, 3.0, 0.0  # "good": 6, "film": 5, "good film": 4
        return logits

    tokenizer = BertTokenizer(tiny_vocabulary)
    options = {"n_best_size": n_best_size, "max_answer_length": 30, "allow_no_answer": False}
    ((chosen,), _, _) = selections(tokenizer, ["x"], ["good film the"], make_logits, **options)
    assert chosen.answer.text == "good"
    assert [found.text for found in chosen.n_best] == ["good", "film"][:n_best_size]


def test_the_best_span_is_the_answer_even_if_the_n_best_have_no_place(tiny_vocabulary):
    def make_logits(rows):
        logits = np.zeros([1, 2, 24])
        logits[0, 0, 3] = logits[0, 1, 4] = 4.0
        logits[0, :, 0] = 3.5
        return logits

    tokenizer = BertTokenizer(tiny_vocabulary)
    options = {"n_best_size": 1, "max_answer_length": 30, "allow_no_answer": True}
    ((chosen,), _, _) = selections(tokenizer, ["x"], ["good film"], make_logits, **options)
    assert chosen.answer.text == "good film" and chosen.score_difference == -1.0
