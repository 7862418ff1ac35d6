"""The reference's random bits against a NumPy Philox and the known answers of Random123."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.ops import philox
from tests.ops import philox_numpy

SEEDS = [0, 1, -1, 0x0123456789ABCDEF, 2**63, 2**64 - 1]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # Random123 1.14, tests/kat_vectors, philox4x32 10
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_numpy_reference_gives_the_known_answers(counter, key, expected):
    words = philox_numpy.philox4x32(counter, key)
    assert " ".join(f"{int(word):08x}" for word in words) == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_elements", [0, 1, 16, 63, 64, 65, 1000])
def test_bits_of_one_stream(seed, num_elements):
    for stream in (0, 5, 2**40 + 3):
        bits = ops.philox_uniform_bits(seed, num_elements, stream)
        assert bits.dtype == tf.uint32
        expected = philox_numpy.element_bits(seed, num_elements, stream)
        np.testing.assert_array_equal(bits, expected)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_elements", [0, 1, 64, 130])
def test_bits_of_many_streams(seed, num_elements):
    streams = [0, 1, 77, 2**33 + 1]
    bits = philox.philox_uniform_bits_streams(seed, tf.constant(streams, tf.int64), num_elements)
    assert bits.shape == (4, num_elements)
    for row, stream in zip(bits, streams, strict=True):
        np.testing.assert_array_equal(row, philox_numpy.element_bits(seed, num_elements, stream))


def test_no_streams_give_no_rows():
    bits = philox.philox_uniform_bits_streams(1, tf.zeros([0], tf.int64), 5)
    assert bits.shape == (0, 5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_bits_are_the_same_in_a_graph_and_under_xla(jit_compile):
    streams = tf.constant([3, 9], tf.int64)

    @tf.function(jit_compile=jit_compile)
    def bits(seed):
        return (
            philox.philox_uniform_bits(seed, 200, 4),
            philox.philox_uniform_bits_streams(seed, streams, 70),
        )

    one, many = bits(tf.constant(12345, tf.int64))
    np.testing.assert_array_equal(one, philox_numpy.element_bits(12345, 200, 4))
    np.testing.assert_array_equal(many[1], philox_numpy.element_bits(12345, 70, 9))


def test_dropout_keeps_the_expected_share_and_scales_it():
    y = philox.dropout(tf.ones([100_000]), 0.1, 3).numpy()
    assert abs((y == 0).mean() - 0.1) < 0.004  # four standard deviations
    np.testing.assert_array_equal(y[y != 0], np.float32(1.0) / (np.float32(1) - np.float32(0.1)))


def test_dropped_nan_is_zero():
    y = philox.dropout(tf.fill([1000], np.nan), 0.5, 3).numpy()
    assert set(np.unique(np.isnan(y))) == {False, True}
    assert (y[~np.isnan(y)] == 0.0).all()


def test_seed_must_be_a_scalar_integer():
    with pytest.raises(ValueError, match="`seed` must be an int.*float32"):
        ops.philox_uniform_bits(tf.constant(1.0), 4)
    with pytest.raises(ValueError, match=r"`seed` must be an int.*\(2,\)"):
        ops.philox_uniform_bits(tf.constant([1, 2]), 4)
