"""The n best answers and the score of no answer, against a plain implementation."""

import random

import numpy as np
import pytest

from bert_tf import BertTokenizer
from bert_tf.tasks.question_answering.answer_selection import select_answers
from bert_tf.tasks.question_answering.context_windows import question_windows
from tests.tasks.question_answering import plain_squad

QUESTIONS = 400


def random_selections(tiny_vocabulary):
    """For each random case: what was selected, and what the plain implementation says."""
    tokenizer = BertTokenizer(tiny_vocabulary)
    source, noise = random.Random(7), np.random.default_rng(7)
    questions = [plain_squad.random_text(source, 3) for _ in range(QUESTIONS)]
    contexts = [
        plain_squad.random_text(source, source.choice((0, 2, 8, 30, 50))) for _ in questions
    ]
    lengths = {"max_length": 24, "doc_stride": 6, "max_query_length": 8}
    windows = [[] for _ in questions]
    for window in question_windows(
        tokenizer, [text for text, _ in questions], [text for text, _ in contexts], **lengths
    ):
        windows[window.example].append(window)
    for mine, (_, question), (text, context) in zip(windows, questions, contexts):
        options = {
            "n_best_size": source.choice((2, 8, 20)),
            "max_answer_length": source.choice((2, 6, 30)),
        }
        version_2 = source.random() < 0.5
        # Few different values, so that many scores are equal; padding that must not count.
        logits = [noise.integers(-4, 5, [2, 24]) / 2 for _ in mine]
        for window, values in zip(mine, logits):
            values[:, window.num_tokens :] = 9.0
        plain = plain_squad.windows(
            [piece for piece, _, _ in question], [piece for piece, _, _ in context], 24, 6, 8
        )
        yield (
            select_answers(text, mine, logits, allow_no_answer=version_2, **options),
            plain_squad.answers(text, context, plain, logits, version_2=version_2, **options),
            text,
        )


def test_answers_and_scores_are_the_plain_ones(tiny_vocabulary):
    without_span = 0
    for selection, (n_best, difference), text in random_selections(tiny_vocabulary):
        rows = [(c.text, c.start_logit, c.end_logit) for c in selection.n_best]
        assert rows == [row[:3] for row in n_best]
        np.testing.assert_allclose(
            [c.probability for c in selection.n_best], [row[3] for row in n_best], rtol=1e-12
        )
        assert selection.score_difference == difference
        assert all(text[c.start : c.end] == c.text for c in selection.n_best)
        assert selection.best in (None, *selection.n_best)
        without_span += selection.best is None
    assert 0 < without_span < QUESTIONS / 2


@pytest.fixture
def selection(tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary)
    (window,) = question_windows(tokenizer, ["x"], ["good film"], 20, 8, 8)
    logits = np.zeros([2, 20])
    logits[0, 3], logits[1, 4] = 2.0, 3.0  # "good film": 5
    logits[:, 0] = 3.0  # no answer: 6

    def select(**options):
        return select_answers("good film", [window], [logits], **options)

    return select


def test_the_threshold_decides_between_text_and_none(selection):
    chosen = selection(allow_no_answer=True)
    assert chosen.score_difference == 1.0
    assert chosen.answer(0.0).text == "" and chosen.answer(1.0).text == "good film"
    assert selection().answer(None).text == "good film"


def test_no_span_at_all_is_no_answer(selection):
    for allowed in (False, True):
        chosen = selection(allow_no_answer=allowed, n_best_size=1)
        assert chosen.best is None and chosen.score_difference == 6.0
        assert chosen.answer(100.0 if allowed else None).text == ""
