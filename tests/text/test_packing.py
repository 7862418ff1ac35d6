"""`pack_and_pad` is `pack` and then `pad`, in fewer ops."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import packing

CLS, SEP, PAD = 1, 2, 0


@pytest.mark.parametrize("rows", [[[5, 6, 7], [], [8]], [[]], [], [[5] * 9, [6] * 4]], ids=str)
def test_pack_and_pad(rows):
    lengths = [len(row) for row in rows]
    segments = tf.RaggedTensor.from_row_lengths(
        tf.constant([piece for row in rows for piece in row], tf.int32),
        tf.constant(lengths, tf.int64),
    )
    lengths_and_more = itertools.product((None, 2, 3, 5, 20), (False, True), (1, 4))
    for max_length, fixed, multiple in lengths_and_more:
        if fixed and max_length is None:
            continue
        length = max_length if fixed else None
        packed = packing.pack(segments, None, CLS, SEP, max_length, "longest_first", "right")
        expected = packing.pad(*packed, PAD, length, multiple)
        outputs = packing.pack_and_pad(segments, CLS, SEP, PAD, max_length, length, multiple)
        assert set(outputs) == set(expected)
        for name, value in outputs.items():
            assert value.dtype == expected[name].dtype
            np.testing.assert_array_equal(
                value, expected[name], f"{name}, {max_length}, {length}, {multiple}"
            )
