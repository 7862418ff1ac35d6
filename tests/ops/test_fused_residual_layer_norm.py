"""fused_residual_layer_norm, native and reference, against float64.

The other instruction sets and thread counts are tested on the kernels themselves:
custom_ops/kernels/fused_residual_layer_norm_test.cc.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.layer_norm_float64 import residual_layer_norm, residual_layer_norm_gradients
from tests.ops.philox_numpy import keep_mask

EPSILON = 1e-12
SEED = -0x0123456789ABCDEF
# Relative error of storing a result.
ROUNDING = {tf.float32: 2.0**-24, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}
DTYPES = list(ROUNDING)
SHAPES = [(1, 3), (17,), (5, 63), (4, 2, 65), (33, 768), (7, 1000), (2, 9000)]
OPTIONAL = list(itertools.product([False, True], repeat=2))

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def _inputs(shape, dtype, has_residual=True, has_bias=True, seed=0):
    """x, residual, bias, gamma, beta as tensors or None, and dy."""
    random = np.random.default_rng(seed)
    features = shape[-1:]
    values = [
        random.normal(size=shape) * 1.5 + 0.5,
        random.normal(size=shape) if has_residual else None,
        random.normal(size=features) if has_bias else None,
        1.0 + 0.3 * random.normal(size=features),
        0.3 * random.normal(size=features),
    ]
    tensors = [None if value is None else tf.cast(value, dtype) for value in values]
    return tensors, tf.cast(random.normal(size=shape), dtype)


def _float64(tensor):
    return None if tensor is None else tf.cast(tensor, tf.float64).numpy()


def _expected(tensors, dy, rate, epsilon=EPSILON):
    """y and the gradients of the tensors that are there."""
    x, residual, bias, gamma, beta = map(_float64, tensors)
    keep = keep_mask(SEED, x.shape, rate)
    y, saved = residual_layer_norm(x, residual, bias, gamma, beta, epsilon, keep)
    gradients = residual_layer_norm_gradients(_float64(dy), gamma, saved, keep)
    present = [g for g, tensor in zip(gradients, tensors, strict=True) if tensor is not None]
    return y, present


def _run(tensors, dy, rate, epsilon=EPSILON):
    present = [tensor for tensor in tensors if tensor is not None]
    with tf.GradientTape() as tape:
        tape.watch(present)
        y = ops.fused_residual_layer_norm(*tensors, epsilon, rate, SEED if rate else None)
    return y, tape.gradient(y, present, output_gradients=dy)


def test_float64_gradients_are_the_derivatives(backend):
    del backend
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


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("has_residual", "has_bias"), OPTIONAL)
def test_values_and_gradients(backend, shape, dtype, rate, has_residual, has_bias):
    tensors, dy = _inputs(shape, dtype, has_residual, has_bias)
    with ops.backend(backend):
        y, gradients = _run(tensors, dy, rate)
    expected_y, expected_gradients = _expected(tensors, dy, rate)
    rounding = ROUNDING[dtype]
    assert y.dtype == dtype
    np.testing.assert_allclose(_float64(y), expected_y, rtol=rounding, atol=2e-5)
    assert len(gradients) == len(expected_gradients)
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        assert gradient.dtype == dtype
        assert gradient.shape == expected.shape
        # Autodiff sums the twin's vectors in the storage type.
        is_sum = gradient.shape.rank < dy.shape.rank
        atol = 0.05 if backend == "reference" and is_sum and dtype != tf.float32 else 5e-5
        rtol = rounding * (4 if backend == "reference" else 1) + 1e-5
        np.testing.assert_allclose(_float64(gradient), expected, rtol=rtol, atol=atol)


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


def test_seed_may_be_a_tensor(backend):
    tensors, _ = _inputs((4, 30), tf.float32)

    @tf.function
    def run(seed):
        return ops.fused_residual_layer_norm(*tensors, EPSILON, 0.2, seed)

    with ops.backend(backend):
        first = run(tf.constant(5, tf.int64))
        other = run(tf.constant(6, tf.int64))
        same = ops.fused_residual_layer_norm(*tensors, EPSILON, 0.2, 5)
    np.testing.assert_allclose(first, same, atol=1e-6)
    assert np.abs(first - other).max() > 0.1


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-18, 1e18, 1e19, 1e30])
def test_huge_and_tiny_numbers(backend, scale):
    (x, _, _, gamma, beta), dy = _inputs((4, 100), tf.float32, False, False)
    x *= scale
    with ops.backend(backend), tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.fused_residual_layer_norm(x, None, None, gamma, beta, epsilon=0.0)
    dx = tape.gradient(y, x, output_gradients=dy)
    expected, (dx_expected, *_) = _expected((x, None, None, gamma, beta), dy, 0.0, epsilon=0.0)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(dx * scale, dx_expected * scale, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 3.0, 1e18])
def test_constant_rows_give_beta(backend, value):
    beta = tf.constant([1.0, 2.0, 3.0, 4.0])
    with ops.backend(backend):
        y = ops.fused_residual_layer_norm(tf.fill([2, 4], value), None, None, tf.ones([4]), beta)
    np.testing.assert_allclose(y, [beta, beta])


def test_nan_and_infinity_stay_in_their_row(backend):
    (x, residual, bias, gamma, beta), _ = _inputs((4, 70), tf.float32)
    x = x.numpy()
    x[0, 69], x[2, 3] = np.nan, np.inf
    with ops.backend(backend):
        y = ops.fused_residual_layer_norm(x, residual, bias, gamma, beta).numpy()
    np.testing.assert_array_equal(np.isnan(y).all(-1), [True, False, True, False])
    np.testing.assert_array_equal(np.isfinite(y).all(-1), [False, True, False, True])


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (2, 0, 3)], ids=str)
def test_empty(backend, shape, rate):
    tensors, dy = _inputs(shape, tf.float32)
    with ops.backend(backend):
        y, gradients = _run(tensors, dy, rate)
    assert y.shape == shape
    for gradient, tensor in zip(gradients, tensors, strict=True):
        np.testing.assert_array_equal(gradient, np.zeros(tensor.shape))


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_graph_of_unknown_shapes(backend, dtype, rate):
    tensors, dy = _inputs((6, 20), dtype)
    expected, gradients = _expected(tensors, dy, rate)
    for shape in (None, [None, None], [None, 20]):
        signature = [tf.TensorSpec(shape, dtype)] * 2 + [tf.TensorSpec(None, dtype)] * 3

        @tf.function(input_signature=[*signature, tf.TensorSpec(shape, dtype)])
        def value_and_gradients(x, residual, bias, gamma, beta, dy):
            return _run([x, residual, bias, gamma, beta], dy, rate)

        with ops.backend(backend):
            y, actual = value_and_gradients(*tensors, dy)
        np.testing.assert_allclose(_float64(y), expected, rtol=ROUNDING[dtype], atol=1e-5)
        np.testing.assert_allclose(
            _float64(actual[1]), gradients[1], rtol=4 * ROUNDING[dtype], atol=1e-4
        )


def test_intermediate_buffers_are_reused_without_harm(backend):
    tensors, dy = _inputs((64, 256), tf.float32)
    x, residual, bias, gamma, beta = tensors

    @tf.function
    def step(x, residual, dy):
        with tf.GradientTape() as tape:
            tape.watch([x, residual])
            y = ops.fused_residual_layer_norm(x * 2.0, residual, bias, gamma, beta, 1e-12, 0.1, 3)
            z = ops.fused_residual_layer_norm(y + x, y, bias, gamma, beta)
        return z, tape.gradient(z, [x, residual], output_gradients=dy * 1.0)

    with ops.backend(backend):
        z, gradients = step(x, residual, dy)
    with ops.backend("reference"):
        expected, expected_gradients = step(x, residual, dy)
    np.testing.assert_allclose(z, expected, atol=1e-4)
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-4)


def test_saved_model_is_differentiable_after_loading(backend, tmp_path):
    tensors, _ = _inputs((3, 10), tf.float32)
    x, residual, bias, gamma, beta = tensors

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 10], tf.float32)] * 2)
        def __call__(self, x, residual):
            return ops.fused_residual_layer_norm(x, residual, bias, gamma, beta, EPSILON, 0.3, SEED)

    with ops.backend(backend):
        tf.saved_model.save(Module(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        tape.watch([x, residual])
        y = loaded(x, residual)
    dy = tf.cast(np.random.default_rng(1).normal(size=(3, 10)), tf.float32)
    gradients = tape.gradient(y, [x, residual], output_gradients=dy)
    expected, expected_gradients = _expected(tensors, dy, 0.3)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    for gradient, expected in zip(gradients, expected_gradients[:2], strict=True):
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_runs_are_equal_bit_for_bit(backend):
    tensors, dy = _inputs((515, 96), tf.float32)
    with ops.backend(backend):
        first, first_gradients = _run(tensors, dy, 0.1)
        if backend == "reference":
            return  # stock reductions promise nothing
        for _ in range(5):
            y, gradients = _run(tensors, dy, 0.1)
            np.testing.assert_array_equal(y, first)
            for gradient, expected in zip(gradients, first_gradients, strict=True):
                np.testing.assert_array_equal(gradient, expected)


def test_errors_say_what_was_expected_and_received(backend):
    x, v = tf.zeros([4, 3]), tf.ones([3])
    layer_norm = ops.fused_residual_layer_norm
    with ops.backend(backend):
        with pytest.raises(ValueError, match=r"shape of x, \(4, 3\).*Received.*\(4, 2\)"):
            layer_norm(x, tf.zeros([4, 2]), None, v, v)
        for position, name in [(2, "bias"), (3, "gamma"), (4, "beta")]:
            arguments = [x, x, v, v, v]
            arguments[position] = tf.zeros([5])
            with pytest.raises(ValueError, match=rf"{name} of shape \[3\].*Received.*\(5,\)"):
                layer_norm(*arguments)
        with pytest.raises(ValueError, match="Received: a scalar"):
            layer_norm(tf.zeros([]), None, None, v, v)
        with pytest.raises(ValueError, match=r"dropout_rate in \[0, 1\).*Received.*1.0"):
            layer_norm(x, None, None, v, v, dropout_rate=1.0, seed=1)
        with pytest.raises(ValueError, match="Expected a seed.*seed=None"):
            layer_norm(x, None, None, v, v, dropout_rate=0.1)
        with pytest.raises(ValueError, match="Expected epsilon >= 0.*-1.0"):
            layer_norm(x, None, None, v, v, epsilon=-1.0)
        with pytest.raises(TypeError, match="dtype of x, float32.*gamma of dtype float16"):
            layer_norm(x, None, None, tf.ones([3], tf.float16), v)


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_twin_under_xla(backend, rate):
    del backend
    tensors, dy = _inputs((6, 20), tf.float32)
    x, residual, bias, gamma, beta = tensors

    @tf.function(jit_compile=True)
    def value_and_gradient(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ops.fused_residual_layer_norm_reference(
                x, residual, bias, gamma, beta, EPSILON, rate, SEED
            )
        return y, tape.gradient(y, x, output_gradients=dy)

    y, dx = value_and_gradient(x, dy)
    expected, (dx_expected, *_) = _expected(tensors, dy, rate)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(dx, dx_expected, atol=1e-5)
