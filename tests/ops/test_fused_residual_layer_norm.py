"""fused_residual_layer_norm, native and reference: its dropout, extreme numbers and errors.
What every op must do is in tests/conformance/test_ops.py.

The other instruction sets and thread counts are tested on the kernels themselves:
custom_ops/kernels/layer_norm/fused_residual_layer_norm_test.cc.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.layer_norm_float64 import residual_layer_norm, residual_layer_norm_gradients
from tests.ops.philox_numpy import keep_mask

EPSILON = 1e-12
SEED = -0x0123456789ABCDEF

on_every_backend = pytest.mark.parametrize("backend", BACKENDS)


def test_float64_gradients_are_the_derivatives():
    random = np.random.default_rng(3)
    values = [random.normal(size=shape) for shape in [(2, 5), (2, 5), (5,), (5,), (5,)]]
    dy = random.normal(size=(2, 5))
    keep = keep_mask(SEED, (2, 5), 0.3)

    def loss(values):
        return (residual_layer_norm(*values, 1e-3, keep)[0] * dy).sum()

    _, saved = residual_layer_norm(*values, 1e-3, keep)
    gradients = residual_layer_norm_gradients(dy, values[3], saved, keep)
    for k, gradient in enumerate(gradients):
        for index in np.ndindex(values[k].shape):
            changed = [[v.copy() for v in values] for _ in range(2)]
            changed[0][k][index] += 1e-6
            changed[1][k][index] -= 1e-6
            difference = (loss(changed[0]) - loss(changed[1])) / 2e-6
            np.testing.assert_allclose(gradient[index], difference, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif("native" not in BACKENDS, reason="needs the native ops")
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(7, 65), (2, 3, 64), (0, 5)])
def test_in_a_graph_the_gradient_adds_those_of_two_users(dtype, rate, shape):
    random = np.random.default_rng(1)
    x, residual, first, second = (tf.cast(random.normal(size=shape), dtype) for _ in range(4))
    bias, gamma, beta = (tf.cast(random.normal(size=shape[-1:]), dtype) for _ in range(3))
    inputs = [x, residual, bias, gamma, beta]

    def gradients(users):
        with ops.backend("native"), tf.GradientTape() as tape:
            tape.watch(inputs)
            y = ops.fused_residual_layer_norm(*inputs, 1e-3, rate, SEED)
            products = [y * user for user in users]
        return tape.gradient(products, inputs)

    traced = tf.function(gradients).get_concrete_function([first, second])
    operations = traced.graph.get_operations()
    (node,) = (op for op in operations if op.type.endswith("LayerNormGrad"))
    assert node.get_attr("num_other_dy") == 1
    sums = [op.outputs[0] for op in operations if op.type == "AddN"]
    assert sums and not any(total.consumers() for total in sums)
    dy = first + second
    wide = [tf.cast(values, tf.float64).numpy() for values in (*inputs, dy)]
    keep = keep_mask(SEED, shape, rate) if rate else 1.0
    _, saved = residual_layer_norm(*wide[:5], 1e-3, keep)
    expected = residual_layer_norm_gradients(wide[5], wide[3], saved, keep)
    rtol = {tf.float32: 1e-5, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}[dtype]
    found, of_sum = traced(first, second), gradients([dy])
    for numbers, same_bits, number in zip(found, of_sum, expected, strict=True):
        np.testing.assert_allclose(tf.cast(numbers, tf.float64), number, rtol=rtol, atol=2e-5)
        np.testing.assert_array_equal(numbers, same_bits)


@on_every_backend
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_dropout_mask_is_the_published_one(backend, rate):
    # One row of ones on a residual of zero: what was dropped is below the mean.
    shape = (3, 131)
    with ops.backend(backend):
        y = ops.fused_residual_layer_norm(
            tf.ones(shape), None, None, tf.ones([131]), tf.zeros([131]), EPSILON, rate, SEED
        )
    keep = keep_mask(SEED, shape, rate)
    for row, kept in zip(y.numpy(), keep, strict=True):
        if 0 < (kept > 0).sum() < kept.size:
            np.testing.assert_array_equal(row > 0, kept > 0)


@on_every_backend
@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-18, 1e18, 1e19, 1e30])
def test_huge_and_tiny_numbers(backend, scale):
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(2, 4, 100)).astype(np.float32)
    gamma, beta = random.normal(size=(2, 100)).astype(np.float32)
    x = tf.constant(x * np.float32(scale))
    with ops.backend(backend), tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.fused_residual_layer_norm(x, None, None, gamma, beta, epsilon=0.0)
    dx = tape.gradient(y, x, output_gradients=tf.constant(dy))
    numbers = x.numpy().astype(np.float64)
    expected, saved = residual_layer_norm(numbers, None, None, gamma, beta, epsilon=0.0)
    dx_expected, *_ = residual_layer_norm_gradients(dy.astype(np.float64), gamma, saved)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(dx * scale, dx_expected * scale, atol=1e-5)


@on_every_backend
@pytest.mark.parametrize("value", [0.0, 3.0, 1e18])
def test_constant_rows_give_beta(backend, value):
    beta = tf.constant([1.0, 2.0, 3.0, 4.0])
    with ops.backend(backend):
        y = ops.fused_residual_layer_norm(tf.fill([2, 4], value), None, None, tf.ones([4]), beta)
    np.testing.assert_allclose(y, [beta, beta])


@on_every_backend
def test_bad_numbers_are_refused(backend):
    x, v = tf.zeros([4, 3]), tf.ones([3])
    layer_norm = ops.fused_residual_layer_norm
    with ops.backend(backend):
        with pytest.raises(ValueError, match=r"`dropout_rate` must be in \[0, 1\).*Received.*1.0"):
            layer_norm(x, None, None, v, v, dropout_rate=1.0, seed=1)
        with pytest.raises(ValueError, match="`seed` must be.*seed=None"):
            layer_norm(x, None, None, v, v, dropout_rate=0.1)
        with pytest.raises(ValueError, match="`epsilon` must be at least 0.*-1.0"):
            layer_norm(x, None, None, v, v, epsilon=-1.0)
