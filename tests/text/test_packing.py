"""Rows of tokens, compared with what Python makes of lists."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import packing

CLS, SEP, PAD = 1, 2, 0
FIRST = [[5, 6, 7], [], [8], [9] * 12]
SECOND = [[10], [11, 12], [], [13] * 9]


def ragged(rows):
    values = [value for row in rows for value in row]
    lengths = tf.constant([len(row) for row in rows], tf.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(values, tf.int32), lengths)


def kept(row, length, side):
    head = {"right": length, "left": 0, "middle": (length + 2) // 4}[side]
    return row[:head] + row[len(row) - length + head :]


@pytest.mark.parametrize("side", packing.TRUNCATION_SIDES)
def test_rows_of_one_segment(side):
    for rows, max_length in itertools.product((FIRST, [[]], []), (None, 2, 3, 5, 20)):
        packed = packing.pack(ragged(rows), None, CLS, SEP, max_length, "longest_first", side)
        limit = 100 if max_length is None else max_length - 2
        expected = [[CLS, *kept(row, min(len(row), limit), side), SEP] for row in rows]
        assert packed[0].to_list() == expected
        assert packed[1].to_list() == [[0] * len(row) for row in expected]
        for length, multiple in ((None, 1), (None, 4), (20, 1)):
            outputs = packing.pad(*packed, PAD, length, multiple)
            longest = max(map(len, expected), default=0)
            width = length or -(-longest // multiple) * multiple
            padded = [row + [PAD] * (width - len(row)) for row in expected]
            np.testing.assert_array_equal(
                outputs["token_ids"], np.reshape(np.array(padded, np.int32), [len(rows), width])
            )
            assert outputs["padding_mask"].numpy().sum(axis=1).tolist() == [*map(len, expected)]
            assert outputs["segment_ids"].shape == (len(rows), width)


@pytest.mark.parametrize("separators, has_segments", [(1, True), (2, False), (2, True)])
def test_rows_of_two_segments(separators, has_segments):
    for side, max_length in itertools.product(packing.TRUNCATION_SIDES, (None, 4, 7, 11)):
        form = "longest_first", side, separators, has_segments
        packed = packing.pack(ragged(FIRST), ragged(SECOND), CLS, SEP, max_length, *form)
        lengths = [np.array([*map(len, rows)]) for rows in (FIRST, SECOND)]
        if max_length is not None:
            budget = max_length - 2 - separators
            lengths = packing.truncated_lengths(*map(tf.constant, lengths), budget, form[0])
        for row, (first, second) in enumerate(zip(FIRST, SECOND)):
            first, second = (
                kept(first, int(lengths[0][row]), side),
                kept(second, int(lengths[1][row]), side),
            )
            before = [CLS, *first, *[SEP] * separators]
            assert packed[0][row].numpy().tolist() == [*before, *second, SEP]
            after = [int(has_segments)] * (len(second) + 1)
            assert packed[1][row].numpy().tolist() == [0] * len(before) + after
