"""quantized_feed_forward: the bits of its two layers, and errors. What every op must do is in
tests/conformance/test_ops.py."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.ops.quantized_dense import MAX_DEPTH

ERRORS = (TypeError, ValueError, tf.errors.InvalidArgumentError)


def _arguments(rows, hidden, inner, dtype=tf.float32, static_scale=None):
    random = np.random.default_rng(rows)

    def normal(*shape):
        return tf.cast(random.standard_normal(shape), dtype)

    def kernel(*shape):
        integers = ops.quantize_kernel(normal(*shape) / 8)
        return ops.pack_quantized_dense(*integers, static_scale=static_scale)

    return {
        "x": normal(rows, hidden), "first": kernel(hidden, inner), "first_bias": normal(inner),
        "second": kernel(inner, hidden), "second_bias": normal(hidden),
        "gamma": normal(hidden), "beta": normal(hidden), "inner_units": inner,
    }  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16], ids=lambda t: t.name)
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_new"])
@pytest.mark.parametrize("static_scale", [None, (0.0123, 93.0)], ids=["dynamic", "static"])
def test_the_bits_of_two_layers(backend, dtype, activation, static_scale):
    for rows in (0, 1, 40, 57, 300):
        given = _arguments(rows, 70, 130, dtype, static_scale)
        with ops.backend(backend):
            y = ops.quantized_feed_forward(**given, activation=activation)
            wide = ops.quantized_dense(
                given["x"], given["first"], 130, bias=given["first_bias"], activation=activation
            )
            expected = ops.quantized_dense(
                wide, given["second"], 70, bias=given["second_bias"], residual=given["x"],
                gamma=given["gamma"], beta=given["beta"],
            )  # fmt: skip
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("change, message", [
    ({"x": tf.zeros([3])}, "`x` must have shape"),
    ({"gamma": tf.zeros([7], tf.float16)}, "`gamma` must have the dtype of `x`"),
    ({"gamma": tf.zeros([6])}, "gamma"),
    ({"first_bias": tf.zeros([8])}, "bias"),
    ({"inner_units": 10}, "packed|scale"),
    ({"activation": "relu"}, "activation"),
    ({"epsilon": -1.0}, "epsilon"),
    ({"first": ops.QuantizedKernel(*[tf.zeros([1])] * 4)}, "`first` must have the dtypes int8"),
], ids=str)  # fmt: skip
def test_bad_arguments(backend, change, message):
    given = {**_arguments(3, 7, 9), **change}
    with ops.backend(backend), pytest.raises(ERRORS, match=message):
        ops.quantized_feed_forward(**given)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_too_many_columns_are_refused(backend):
    with ops.backend(backend), pytest.raises(ERRORS, match="at most 65536 columns"):
        ops.quantized_feed_forward(**_arguments(1, MAX_DEPTH + 1, 1))
