"""Sizes whose product no buffer holds: an error of the op, where the process once ended."""

import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.ops import native
from tests.ops.test_shape_functions import requires_library

LARGE = 2**40
SEED = tf.constant(0, tf.int64)
ERRORS = (ValueError, tf.errors.InvalidArgumentError)


def _dense(x, packed, units):
    return native.library().bert_tf_fused_dense(x, packed, [], [], [], [], units=units)


CASES = {
    "packed": (lambda: _dense(tf.zeros([0, LARGE]), tf.zeros([0]), LARGE), "at most .* elements"),
    "rounded up": (
        lambda: _dense(tf.zeros([0, 1]), tf.zeros([0]), 2**63 - 1), "at most .* elements"
    ),
    "a little over 2^62": (
        lambda: _dense(tf.zeros([0, 2**31]), tf.zeros([0]), 2**31 + 5), "at most .* elements"
    ),
    "result": (lambda: _dense(tf.zeros([LARGE, 0]), tf.zeros([0]), LARGE), "overflow|2\\^63"),
    "pack": (lambda: native.library().bert_tf_pack_dense(tf.zeros([0, 2**62])), None),
    "pack transposed": (
        lambda: native.library().bert_tf_pack_dense(tf.zeros([0, 2**62]), transposed=True), None
    ),
    "gate of no columns": (
        lambda: native.library().bert_tf_fused_gate(tf.zeros([LARGE, 0]), activation="silu"), None
    ),
    "attention of no rows": (
        lambda: native.library().bert_tf_varlen_attention(
            tf.zeros([0, 3, LARGE, LARGE]), tf.constant([0, 0]), SEED, [], [], [], []
        ), None,
    ),
    "cross-attention of no rows": (
        lambda: native.library().bert_tf_varlen_cross_attention(
            tf.zeros([0, LARGE, LARGE]), tf.zeros([0, 2, LARGE, LARGE]),
            tf.constant([0, 0]), tf.constant([0, 0]), SEED,
        ), None,
    ),
}  # fmt: skip


@requires_library
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", [name for name, (_, said) in CASES.items() if said])
def test_what_no_buffer_holds_is_refused(name, compiled):
    if compiled and not native.compiles_under_xla():
        pytest.skip("needs a TensorFlow with the headers of XLA")
    call, said = CASES[name]
    with pytest.raises(ERRORS, match=said):
        tf.function(call, jit_compile=True)() if compiled else call()


@requires_library
@pytest.mark.parametrize("name", [name for name, (_, said) in CASES.items() if not said])
def test_nothing_of_a_large_size_is_nothing_or_refused_at_once(name):
    call, _ = CASES[name]
    try:
        outputs = call()
    except tf.errors.InvalidArgumentError as error:
        assert "at most" in error.message
    else:
        assert all(0 in output.shape for output in tf.nest.flatten(outputs))


@requires_library
def test_int8_sizes_are_checked():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="at most .* elements"):
        p = tf.compat.v1.placeholder
        native.library().bert_tf_quantized_dense(
            p(tf.float32, [0, 65536]), p(tf.int8, [0]), p(tf.float32, [2**50]),
            p(tf.int32, [2**50]), p(tf.float32, [65536]), [], [], [], [], [],
            units=2**50,
        )  # fmt: skip


@requires_library
def test_a_shape_function_checks_sizes():
    p = tf.compat.v1.placeholder
    with tf.Graph().as_default(), pytest.raises(ValueError, match="at most .* elements"):
        _dense(p(tf.float32, [0, LARGE]), p(tf.float32, [0]), LARGE)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="fewer than 2.63 elements"):
        _dense(p(tf.float32, [LARGE, 0]), p(tf.float32, [0]), LARGE)


@requires_library
def test_scratch_that_no_buffer_holds_is_refused_by_xla():
    if not native.compiles_under_xla():
        pytest.skip("needs a TensorFlow with the headers of XLA")
    columns = 2**58

    @tf.function(jit_compile=True)
    def run():
        none, empty, vector = tf.zeros([0, columns]), tf.zeros([0]), tf.zeros([columns])
        return native.library().bert_tf_fused_residual_layer_norm_grad(
            none, none, [], [], vector, empty, empty, SEED, [], num_dresidual=0
        )

    with pytest.raises(tf.errors.InvalidArgumentError, match="scratch fits memory"):
        run()


def test_the_public_function_refuses_too():
    with pytest.raises(ERRORS):
        ops.fused_dense(tf.zeros([0, LARGE]), tf.zeros([0]), LARGE)
