"""quantized_attention: its error, lengths, NaN and errors. What every op must do is in
tests/conformance/test_ops.py, and every integer is compared with the formula in
custom_ops/kernels/attention/quantized_attention_test.cc."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.ops.quantized_attention import MAX_QUANTIZED_LENGTH
from tests.ops import numpy_quantized_attention, numpy_varlen_attention
from tests.ops.backends import BACKENDS


def _qkv(rows, num_heads=2, head_size=64):
    random = np.random.default_rng(0)
    return random.standard_normal([rows, 3, num_heads, head_size]).astype(np.float32)


def _error(actual, expected):
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("common", [0.0, 10.0])
def test_the_error_is_small_also_if_all_keys_have_much_in_common(backend, common):
    qkv, splits = _qkv(300), [0, 200, 300]
    qkv[:, 1] += common * np.sign(qkv[0, 1])
    expected = ops.varlen_attention(qkv, splits).numpy()
    with ops.backend(backend):
        output = ops.quantized_attention(qkv, splits).numpy()
    assert 1e-4 < _error(output, expected) < 0.015


@pytest.mark.parametrize("backend", BACKENDS)
def test_nearly_all_outputs_are_those_of_the_formula(backend):
    qkv, splits = _qkv(150), [0, 20, 20, 150]
    expected = numpy_quantized_attention.quantized_attention(qkv.astype(np.float64), splits)
    with ops.backend(backend):
        output = ops.quantized_attention(qkv, splits).numpy()
    # A weight at the middle of two integers may be rounded to either.
    is_near = np.isclose(output, expected, rtol=1e-5, atol=1e-5)
    assert is_near.mean() > 0.95
    np.testing.assert_allclose(output, expected, atol=0.02)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rotation_turns_queries_and_keys_before_they_are_quantized(backend):
    qkv, splits = _qkv(150), [0, 20, 20, 150]
    angles = np.outer(np.arange(130), 0.9 ** np.arange(20))
    rotation = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    turned = numpy_varlen_attention.turned(qkv, splits, rotation)
    expected = numpy_quantized_attention.quantized_attention(turned, splits)
    rule = ops.AttentionRule(rotation=tf.constant(rotation))

    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None, tf.int32)])
    def attend(qkv, splits):
        return ops.quantized_attention(qkv, splits, rule)

    with ops.backend(backend):
        np.testing.assert_allclose(attend(qkv, splits), expected, atol=0.02)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constant_value_is_kept(backend):
    qkv = _qkv(90)
    qkv[:, 2] = 3.0
    with ops.backend(backend):
        output = ops.quantized_attention(qkv, [0, 90])
    np.testing.assert_allclose(output, np.full([90, 2, 64], 3.0), rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("part", [0, 1, 2], ids=["query", "key", "value"])
def test_what_nan_reaches(backend, part):
    qkv, splits = _qkv(12, head_size=8), [0, 5, 12]
    qkv[7, part, 1, 3] = np.nan
    with ops.backend(backend):
        output = ops.quantized_attention(qkv, splits, ops.AttentionRule(causal=True)).numpy()
    expected = np.zeros(output.shape, bool)
    expected[slice(7, 8) if part == 0 else slice(5, 12), 1] = True
    np.testing.assert_array_equal(np.isnan(output), expected)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_sequence_that_is_too_long_is_refused(jit_compile):
    qkv = tf.zeros([MAX_QUANTIZED_LENGTH + 3, 3, 1, 1])
    attend = tf.function(
        lambda qkv, splits: ops.quantized_attention(qkv, splits, ops.AttentionRule(window_size=0)),
        jit_compile=jit_compile,
    )
    most = MAX_QUANTIZED_LENGTH
    expected = f"at most {most} tokens.*Received: {most + 1} tokens in sequence 1"
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        attend(qkv, tf.constant([0, 2, MAX_QUANTIZED_LENGTH + 3]))


def test_the_reference_refuses_it_too():
    qkv = tf.zeros([MAX_QUANTIZED_LENGTH + 1, 3, 1, 1])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"at most {MAX_QUANTIZED_LENGTH} tokens"
    ):
        ops.quantized_attention_reference(qkv, [0, MAX_QUANTIZED_LENGTH + 1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_head_that_is_too_large_is_refused(backend):
    with ops.backend(backend), pytest.raises(ValueError, match="at most 65536.*int32"):
        ops.quantized_attention(tf.zeros([1, 3, 1, 65537]), [0, 1])


def test_the_shape_function_refuses_it_too():
    @tf.function(input_signature=[tf.TensorSpec([None, 3, None, None])])
    def attend(qkv):
        return ops.quantized_attention(qkv, [0, 1])

    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 65536 columns"):
        attend(tf.zeros([1, 3, 1, 65537]))


def test_a_gradient_is_refused():
    qkv = tf.constant(_qkv(4))
    with tf.GradientTape() as tape:
        tape.watch(qkv)
        output = ops.quantized_attention(qkv, [0, 4])
    with pytest.raises(LookupError, match="inference only.*Train in floating point"):
        tape.gradient(output, qkv)
