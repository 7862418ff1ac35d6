"""Windows and targets, against a plain implementation, and on the official file's sample."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.errors import DataError, UserError
from bert_tf.inputs.batches import sorted_batches
from bert_tf.inputs.token_rows import batches_of_numbers
from bert_tf.tasks.question_answering.files import GoldAnswer, answer_span, read_squad
from bert_tf.tasks.question_answering.question_windows import QuestionWindows
from bert_tf.tasks.token_classification.word_windows import WordWindows
from tests.tasks.question_answering import plain_squad

# `max_length`, `doc_stride`, `max_query_length`: `make test` has the least stride, one of more than
# a window, and the shortest windows.
SETTINGS = [(20, 1, 9), (24, 100, 6), (9, 2, 5)]
MORE_SETTINGS = [(12, 3, 4), (32, 8, 20), (40, 16, 10)]
QUESTIONS_OF_A_SETTING = 50


@pytest.fixture(scope="module")
def tokenizer(request):
    return BertTokenizer(request.getfixturevalue("tiny_vocabulary"))


def random_cases(seed, count):
    """Questions and contexts with their pieces."""
    source = random.Random(seed)
    lengths = [source.choice((0, 1, 3, 10, 25, 60)) for _ in range(count)]
    questions = [plain_squad.random_text(source, source.randint(0, 8)) for _ in range(count)]
    return questions, [plain_squad.random_text(source, length) for length in lengths]


@pytest.mark.parametrize(
    "setting", [*SETTINGS, *(pytest.param(s, marks=pytest.mark.full) for s in MORE_SETTINGS)]
)
def test_windows_and_targets_are_the_plain_ones(tokenizer, setting):
    max_length, doc_stride, max_query_length = setting
    questions, contexts = random_cases(max_length, QUESTIONS_OF_A_SETTING)
    source = random.Random(max_length)
    answers, spans = [], []
    for text, pieces in contexts:
        span = None
        if pieces and source.random() < 0.8:
            first = source.randrange(len(pieces))
            last = min(first + source.randint(0, 6), len(pieces) - 1)
            span = first, last
        spans.append(span)
        if span is None:
            answers.append(None)
        else:
            start = pieces[span[0]][1]
            answers.append((text[start : pieces[span[1]][2]], start))
    windows = QuestionWindows(
        tokenizer,
        [text for text, _ in questions],
        [text for text, _ in contexts],
        max_length=max_length,
        doc_stride=doc_stride,
        max_query_length=max_query_length,
    )
    assert windows.with_targets(answers) == []
    expected = [
        (number, window)
        for number, ((_, question), (_, context)) in enumerate(zip(questions, contexts))
        for window in plain_squad.windows(
            [piece for piece, _, _ in question],
            [piece for piece, _, _ in context],
            max_length,
            doc_stride,
            max_query_length,
        )
    ]
    assert len(windows) == len(expected)
    best = windows.windows.shows_best.to_list()
    numbers = tf.data.Dataset.range(len(windows)).batch(1)
    batches = batches_of_numbers(windows, windows.labels, numbers)
    for row, ((features, label), (number, plain)) in enumerate(zip(batches, expected)):
        assert windows.examples[row] == number
        ids = [tokenizer.token_to_id(token) for token in plain["tokens"]]
        assert features["token_ids"][0].numpy().tolist() == ids
        assert features["segment_ids"][0].numpy().tolist() == plain["segments"]
        assert set(np.flatnonzero(best[row])) == plain["best"]
        start, offset = (int(part[row]) for part in (windows.windows.start, windows.windows.offset))
        assert {place: start + place - offset for place in plain["context"]} == plain["context"]
        wanted = plain_squad.target(plain, *spans[number]) if spans[number] else (0, 0)
        assert wanted == tuple(label[0].numpy()) == tuple(windows.labels[0][row])


def test_every_token_is_best_in_one_window(tokenizer):
    windows = QuestionWindows(tokenizer, ["the"], ["good film. " * 40], 20, 7, 5).windows
    first = (windows.start - windows.offset).numpy()
    best = windows.shows_best.to_list()
    seen = np.concatenate([start + np.flatnonzero(row) for start, row in zip(first, best)])
    assert sorted(seen) == list(range(120))


def test_batches_cover_every_window(tokenizer):
    texts = ["x " * length for length in range(1, 30)]
    windows = QuestionWindows(tokenizer, texts, texts, 40, 8, 10)
    assert windows.with_targets([None] * len(texts)) == []
    sizes = [windows.batch(n)["token_ids"].shape for n in sorted_batches(windows, 100)]
    assert sum(rows for rows, _ in sizes) == len(windows)
    assert all(rows * length <= 100 for rows, length in sizes)
    assert [length for _, length in sizes] == sorted((n for _, n in sizes), reverse=True)
    indices = sorted_batches(windows, 100, batch_size=2)
    assert max(map(len, indices)) == 2
    assert sorted(np.concatenate(indices)) == list(range(len(windows)))


def test_windows_are_made_by_the_constructor_alone():
    for cls in (QuestionWindows, WordWindows):
        # Those of `TokenizedTexts` would call the constructor with other arguments.
        assert not hasattr(cls, "of") and not hasattr(cls, "of_windows")


def test_answers_that_are_not_there_are_counted(tokenizer):
    contexts = ["the good film"] * 5
    answers = [("good", 4), ("good", 5), ("bad", 4), ("  ", 3), ("film", 90)]
    windows = QuestionWindows(tokenizer, ["x"] * 5, contexts, max_query_length=8, max_length=20)
    assert windows.with_targets(answers, np.arange(5.0)) == [1, 2, 3, 4]
    assert windows.examples.tolist() == [0] and len(windows) == 1
    targets, weights = windows.labels
    assert targets.tolist() == [[4, 4]] and weights.tolist() == [0.0]
    with pytest.raises(DataError, match="none in 1 questions"):
        QuestionWindows(tokenizer, ["x"], contexts[:1]).with_targets([("bad", 4)])


def test_answer_inside_a_word_takes_the_pieces_it_touches(tokenizer):
    # "xyz" is three pieces; "film" is one, and an answer inside it takes it whole.
    windows = QuestionWindows(tokenizer, ["x"] * 2, ["xyz film"] * 2)
    windows.with_targets([("y", 1), ("il", 5)])
    assert windows.labels[0].tolist() == [[4, 4], [6, 6]]
    assert answer_span("a\n b", GoldAnswer("a  b", 0)) == (0, 4)


def test_bad_arguments_are_refused(tokenizer):
    for name, value in {"max_length": 20, "doc_stride": 0, "max_query_length": 0}.items():
        with pytest.raises(UserError, match=f"`{name}` must be at least"):
            QuestionWindows(tokenizer, ["x"], ["x"], **{name: value})
    with pytest.raises(UserError, match="1 questions, 2 contexts"):
        QuestionWindows(tokenizer, ["x"], ["x", "y"])
    with pytest.raises(UserError, match="1 questions, 0 answers"):
        QuestionWindows(tokenizer, ["x"], ["x"]).with_targets([])


def test_answers_of_the_official_sample_come_back(materials, minilm):
    examples = read_squad(materials / "format_fixtures" / "squad.json")
    tokenizer = BertTokenizer.from_pretrained(minilm)
    windows = QuestionWindows(
        tokenizer,
        [example.question for example in examples],
        [example.context for example in examples],
        max_length=64,
        doc_stride=24,
        max_query_length=24,
    )
    assert not windows.with_targets([example.training_answer() for example in examples])
    assert len(examples) == 5 and len(windows) > 5
    found = {}
    parts = windows.windows
    for row, (first, last) in enumerate(windows.labels[0]):
        if first:
            number = windows.examples[row]
            pieces = tokenizer.tokenize_with_offsets([examples[number].context])
            shift = int(parts.start[row] - parts.offset[row])
            start = int(pieces.char_starts[0, first + shift])
            end = int(pieces.char_ends[0, last + shift])
            found[number] = examples[number].context[start:end]
    assert found == {n: example.answers[0].text for n, example in enumerate(examples)}
