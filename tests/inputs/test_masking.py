"""Masks: their statistics, and the same algorithms word by word in Python."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import ConfigError
from bert_tf.inputs import masking
from bert_tf.inputs.masking import ALBERT_NGRAMS, SPANBERT_SPANS, mask_tokens, num_to_predict
from bert_tf.ops.philox import philox_uniform_bits_streams

CLS, SEP, MASK, VOCAB = 2, 3, 4, 500
FEW, MANY = 2000, 20000  # rows
LENGTH, PREDICTIONS = 64, 9


def rows_of_text(count, seed=0):
    """`[CLS] a [SEP] b [SEP]` and padding; a token starts a word with probability 0.6."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(5, LENGTH + 1, count)
    firsts = generator.integers(2, lengths - 2)  # the column of the first [SEP]
    columns = np.arange(LENGTH)
    maskable = (columns > 0) & (columns < lengths[:, None] - 1) & (columns != firsts[:, None])
    token_ids = np.where(maskable, generator.integers(5, VOCAB, (count, LENGTH)), SEP)
    token_ids[:, 0] = CLS
    token_ids[columns >= lengths[:, None]] = 0
    return dict(
        token_ids=tf.constant(token_ids, tf.int32),
        maskable=tf.constant(maskable),
        lengths=tf.constant(lengths, tf.int32),
        streams=tf.range(count, dtype=tf.int64),
        word_starts=tf.constant(generator.random((count, LENGTH)) < 0.6),
    )


@tf.function(autograph=False)
def _masked(options, **tensors):
    return mask_tokens(**tensors, **dict(options))


def masked(rows, seed=7, **options):
    options = (
        dict(seed=seed, mask_token_id=MASK, vocab_size=VOCAB, max_predictions=PREDICTIONS) | options
    )
    result = _masked(tuple(options.items()), **rows)
    return masking.MaskedTokens(*(part.numpy() for part in result))


def within(successes, trials, probability, sigmas=4.5):
    deviation = math.sqrt(trials * probability * (1 - probability))
    assert abs(successes - trials * probability) < sigmas * deviation, (
        f"{successes} of {trials}, expected {probability}"
    )


def chosen_columns(result):
    for row, (positions, weights) in enumerate(zip(result.masked_positions, result.masked_weights)):
        yield row, positions[weights > 0].tolist()


@pytest.mark.parametrize("name", ["token", "whole_word", "span"])
def test_eager_masks_are_those_of_a_graph(name):
    rows = rows_of_text(20)
    options = dict(seed=7, mask_token_id=MASK, vocab_size=VOCAB, max_predictions=PREDICTIONS)
    eager = mask_tokens(**rows, **options, masking=name)
    for part, expected in zip(eager, masked(rows, masking=name)):
        np.testing.assert_array_equal(part.numpy(), expected)


@pytest.mark.parametrize("name", ["token", "whole_word", "span"])
def test_statistics(name, is_full):
    rows = rows_of_text(MANY if is_full else FEW)
    result = masked(rows, masking=name)
    before, maskable = rows["token_ids"].numpy(), rows["maskable"].numpy()
    budget = num_to_predict(rows["lengths"].numpy(), 0.15, PREDICTIONS)
    at_masks = np.zeros_like(maskable)
    for row, columns in chosen_columns(result):
        assert columns == sorted(set(columns))
        assert maskable[row, columns].all()
        assert len(columns) == min(budget[row], maskable[row].sum()) or (
            name != "token" and len(columns) < budget[row]
        )
        at_masks[row, columns] = True
        np.testing.assert_array_equal(result.masked_ids[row, : len(columns)], before[row, columns])
    assert not result.masked_ids[result.masked_weights == 0].any()
    assert not result.masked_positions[result.masked_weights == 0].any()
    np.testing.assert_array_equal(result.token_ids[~at_masks], before[~at_masks])

    total = at_masks.sum()
    # Words are short, so nearly all of the budget is used.
    assert 0.97 * budget.sum() < total <= budget.sum()
    hidden = result.token_ids[at_masks] == MASK
    same = result.token_ids[at_masks] == before[at_masks]
    # A span decides once for some 2.3 tokens: its counts vary more.
    sigmas = 12 if name == "span" else 4.5
    within(hidden.sum(), total, 0.8 + 0.1 / VOCAB, sigmas)
    within(same.sum(), total, 0.1 + 0.1 / VOCAB, sigmas)
    random_ids = result.token_ids[at_masks][~hidden & ~same]
    within(len(random_ids), total, 0.1, sigmas)
    # The random tokens come from all of the vocabulary, special tokens included.
    within(np.sum(random_ids < 50), len(random_ids), 0.1)
    assert random_ids.min() < 5 * VOCAB / 100 and random_ids.max() > 0.98 * VOCAB


def test_every_place_is_as_likely(is_full):
    rows = rows_of_text(MANY if is_full else FEW)
    full = rows["lengths"].numpy() > 50
    result = masked(rows)
    hits, trials = np.zeros(LENGTH), np.zeros(LENGTH)
    for row, columns in chosen_columns(result):
        if full[row]:
            hits[columns] += 1
            trials += (
                rows["maskable"][row].numpy() * len(columns) / (rows["maskable"][row].numpy().sum())
            )
    used = trials > 20
    score = (hits[used] - trials[used]) / np.sqrt(trials[used])
    assert used.sum() > 45 and np.abs(score).max() < 4.5
    assert hits[0] == 0


def by_hand(rows, name, probabilities, seed=7):
    """The same draws, but one word after the other."""
    tensors = {key: value.numpy() for key, value in rows.items()}
    count = len(tensors["lengths"])
    bits = philox_uniform_bits_streams(seed, rows["streams"], 4 * LENGTH).numpy()
    bits = bits.reshape(count, LENGTH, 4).astype(np.float64) / 2.0**32
    for row in range(count):
        words = []  # lists of columns, None between segments
        for column in range(LENGTH):
            if not tensors["maskable"][row, column]:
                words.append(None)
            elif words[-1] is None or tensors["word_starts"][row, column]:
                words.append([column])
            else:
                words[-1].append(column)
        left = int(num_to_predict(tensors["lengths"][row], 0.15, PREDICTIONS))
        numbers = [number for number, word in enumerate(words) if word]
        chosen, spans = set(), []
        for number in sorted(numbers, key=lambda number: bits[row, words[number][0], 0]):
            size = 1
            if name == "span":
                drawn = bits[row, words[number][0], 3]
                size += sum(drawn >= share for share in np.cumsum(probabilities)[:-1])
            span = []
            for word in words[number : number + size]:
                if not word or word[0] in chosen or len(word) > left:
                    break
                span += word
                left -= len(word)
                chosen.update(word)
            if span:
                spans.append(span)
        yield row, spans, bits[row]


@pytest.mark.parametrize(
    "name,probabilities",
    [("whole_word", SPANBERT_SPANS), ("span", SPANBERT_SPANS), ("span", ALBERT_NGRAMS)],
)
def test_words_and_spans_by_hand(name, probabilities):
    rows = rows_of_text(FEW // 10, seed=3)
    result = masked(rows, masking=name, span_probabilities=probabilities)
    columns_of = dict(chosen_columns(result))
    for row, spans, bits in by_hand(rows, name, probabilities):
        assert sorted(sum(spans, [])) == columns_of[row]
        for span in spans:
            assert span == list(range(span[0], span[-1] + 1))
            decisions = bits[span, 1] if name == "whole_word" else [bits[span[0], 1]] * len(span)
            for column, decision in zip(span, decisions):
                token = result.token_ids[row, column]
                expected = (
                    MASK
                    if decision < 0.8
                    else rows["token_ids"][row, column].numpy()
                    if decision < 0.9
                    else int(bits[column, 2] * VOCAB)
                )
                assert token == expected


def test_span_lengths_are_geometric(is_full):
    """Where there is room, spans have the asked distribution."""
    count, length = MANY if is_full else FEW, 120
    columns = np.arange(length)
    maskable = np.tile((columns > 0) & (columns < length - 1), (count, 1))
    result = masked(
        dict(
            token_ids=tf.fill([count, length], 9),
            maskable=tf.constant(maskable),
            lengths=tf.fill([count], length),
            streams=tf.range(count, dtype=tf.int64),
            word_starts=tf.ones([count, length], tf.bool),
        ),
        masking="span",
        masked_lm_prob=0.09,
        max_predictions=20,
        span_probabilities=(0.5, 0, 0.5),
    )
    runs = []
    for _, chosen in chosen_columns(result):
        runs += [len(run) for run in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1)]
    share = {size: runs.count(size) / len(runs) for size in (1, 2, 3)}
    assert share[2] < 0.1  # a span cut by the number of the row, or two beside each other
    assert abs(share[1] - 0.5) < 0.06 and abs(share[3] - 0.5) < 0.12


@pytest.mark.parametrize("name", ["token", "span"])
def test_a_row_does_not_depend_on_its_batch(name):
    rows = rows_of_text(40)
    short = rows["lengths"].numpy() <= 40
    everything = masked(rows, masking=name)
    alone = masked(
        {
            key: tf.boolean_mask(value, short)[:, :40]
            if value.shape.rank == 2
            else tf.boolean_mask(value, short)
            for key, value in rows.items()
        },
        masking=name,
    )
    for whole, part in zip(everything, alone):
        np.testing.assert_array_equal(whole[short][:, : part.shape[1]], part)
    other = masked({**rows, "streams": rows["streams"] + 40}, masking=name)
    seeded = masked(rows, seed=8, masking=name)
    for result in (other, seeded):
        assert (result.token_ids != everything.token_ids).any()


def test_short_rows_and_many_predictions():
    rows = dict(
        token_ids=tf.constant([[CLS, 9, SEP], [CLS, SEP, 0]]),
        maskable=tf.constant([[False, True, False], [False] * 3]),
        lengths=tf.constant([3, 2]),
        streams=tf.constant([0, 1], tf.int64),
        word_starts=tf.ones([2, 3], tf.bool),
    )
    for name in masking.MASKINGS:
        result = masked(rows, masking=name, max_predictions=5)
        assert result.masked_weights.tolist() == [[1, 0, 0, 0, 0], [0] * 5]
        assert result.masked_ids[0, 0] == 9 and result.masked_positions[0, 0] == 1


def test_number_of_predictions_rounds_as_python():
    lengths = np.arange(3, 513)
    expected = [min(76, max(1, round(int(length) * 0.15))) for length in lengths]
    assert num_to_predict(lengths, 0.15, 76).tolist() == expected
    assert num_to_predict(tf.constant(lengths), 0.15, 76).numpy().tolist() == expected


@pytest.mark.parametrize(
    "options,message",
    [
        ({"masking": "words"}, "masking='words'"),
        ({"masked_lm_prob": 0.0}, "masked_lm_prob=0.0"),
        ({"mask_token_id": 10, "vocab_size": 10}, "mask_token_id=10, vocab_size=10"),
        ({"mask_token_id": -1}, "mask_token_id=-1"),
        ({"masked_lm_prob": 1.0}, "masked_lm_prob=1.0"),
        ({"max_predictions": 0}, "max_predictions_per_seq=0"),
        ({"span_probabilities": (0.5, 0.4)}, "sum to 1"),
        ({"masking": "whole_word", "word_starts": None}, "word_starts=None"),
    ],
)
def test_bad_options(options, message):
    rows = rows_of_text(2)
    arguments = (
        rows | dict(seed=0, mask_token_id=MASK, vocab_size=VOCAB, max_predictions=5) | options
    )
    with pytest.raises(ConfigError, match=message):
        mask_tokens(**arguments)
