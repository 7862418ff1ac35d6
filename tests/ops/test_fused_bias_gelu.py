"""fused_bias_gelu, native and reference, against float64.

Accuracy over all exponents, the other instruction sets and thread counts are tested on the kernels
themselves: custom_ops/kernels/fused_bias_gelu_test.cc.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.gelu_float64 import gelu, gelu_slope

# Relative error of storing a result.
ROUNDING = {tf.float32: 2.0**-24, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}
DTYPES = list(ROUNDING)
SHAPES = [(1, 1), (3,), (2, 17), (5, 63), (4, 2, 65), (33, 768), (7, 1000), (2, 9000)]

pytestmark = [
    pytest.mark.parametrize("backend", BACKENDS),
    pytest.mark.parametrize("approximate", [False, True], ids=["erf", "tanh"]),
]


def _inputs(shape, dtype, seed=0):
    """x, bias and dy, and the float32 sum that the op takes the GELU of."""
    random = np.random.default_rng(seed)
    x = tf.cast(random.normal(size=shape, scale=2.0), dtype)
    bias = tf.cast(random.normal(size=shape[-1:]), dtype)
    dy = tf.cast(random.normal(size=shape), dtype)
    s = (tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)).numpy().astype(np.float64)
    return x, bias, dy, s


def _float64(tensor):
    return tf.cast(tensor, tf.float64).numpy()


def test_float64_slope_is_the_derivative(backend, approximate):
    del backend
    s = np.linspace(-8.0, 8.0, 401)
    step = 1e-5
    difference = (gelu(s + step, approximate) - gelu(s - step, approximate)) / (2 * step)
    np.testing.assert_allclose(gelu_slope(s, approximate), difference, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(backend, approximate, shape, dtype):
    x, bias, dy, s = _inputs(shape, dtype)
    with ops.backend(backend), tf.GradientTape() as tape:
        tape.watch([x, bias])
        y = ops.fused_bias_gelu(x, bias, approximate)
    dx, dbias = tape.gradient(y, [x, bias], output_gradients=dy)
    assert y.dtype == dx.dtype == dbias.dtype == dtype
    assert y.shape == dx.shape == shape
    rounding = ROUNDING[dtype]
    np.testing.assert_allclose(
        _float64(y), gelu(s, approximate), rtol=rounding + 1e-5, atol=rounding * 1e-3
    )
    slope = _float64(dy) * gelu_slope(s, approximate)
    np.testing.assert_allclose(_float64(dx), slope, rtol=rounding + 2e-6, atol=2e-6)
    if backend == "native" or dtype == tf.float32:
        # The twin's gradient of bias is summed in half precision by autodiff of the cast: it is
        # compared in float32 only.
        rows = tuple(range(len(shape) - 1))
        np.testing.assert_allclose(
            _float64(dbias), slope.sum(rows), rtol=rounding + 1e-5, atol=1e-5
        )


def test_eight_ulp_over_the_negative_tail(backend, approximate):
    # From where on the results are subnormal; TensorFlow's erfc is flushed to zero before.
    lowest = 10.0 if approximate else 13.0 if backend == "native" else 12.5
    s = -np.geomspace(1e-3, lowest, 200_001).astype(np.float32)
    with ops.backend(backend):
        y = ops.fused_bias_gelu(s, np.zeros(s.shape, np.float32), approximate).numpy()
    expected = gelu(s, approximate)
    normal = np.abs(expected) > 2.0**-125
    ulps = np.abs(y - expected)[normal] / np.spacing(np.abs(expected[normal]).astype(np.float32))
    # The twin rounds the exponential's argument to float32: 8 ulp where that is small.
    assert ulps.max() <= 8.0 if backend == "native" else ulps.max() <= 300.0


def test_infinities_nan_and_huge_values(backend, approximate):
    s = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0], np.float32)
    with ops.backend(backend), tf.GradientTape() as tape:
        x = tf.constant(s)
        tape.watch(x)
        y = ops.fused_bias_gelu(x, tf.zeros([6]), approximate)
    dx = tape.gradient(y, x)
    np.testing.assert_array_equal(y, np.array([np.inf, 0, np.nan, 3e38, 0, 0], np.float32))
    np.testing.assert_array_equal(dx, [1.0, 0.0, np.nan, 1.0, 0.0, 0.5])


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (2, 0, 3), (0,)], ids=str)
def test_empty(backend, approximate, shape):
    x = tf.zeros(shape)
    bias = tf.ones(shape[-1:])
    with ops.backend(backend), tf.GradientTape() as tape:
        tape.watch([x, bias])
        y = ops.fused_bias_gelu(x, bias, approximate)
    dx, dbias = tape.gradient(y, [x, bias])
    assert y.shape == dx.shape == shape
    np.testing.assert_array_equal(dbias, np.zeros(shape[-1:]))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_graph_of_unknown_shapes(backend, approximate, dtype):
    x, bias, dy, s = _inputs((6, 20), dtype)
    expected = gelu(s, approximate)
    for shape in (None, [None, None], [None, 20]):

        @tf.function(
            input_signature=[
                tf.TensorSpec(shape, dtype),
                tf.TensorSpec(None, dtype),
                tf.TensorSpec(shape, dtype),
            ]
        )
        def value_and_gradients(x, bias, dy):
            with tf.GradientTape() as tape:
                tape.watch([x, bias])
                y = ops.fused_bias_gelu(x, bias, approximate)
            return y, tape.gradient(y, [x, bias], output_gradients=dy)

        with ops.backend(backend):
            y, (dx, dbias) = value_and_gradients(x, bias, dy)
        np.testing.assert_allclose(_float64(y), expected, rtol=2 * ROUNDING[dtype], atol=1e-4)
        assert dx.shape == x.shape
        assert dbias.shape == bias.shape


def test_intermediate_buffers_are_reused_without_harm(backend, approximate):
    x, bias, _, _ = _inputs((64, 256), tf.float32)

    @tf.function
    def chain(x, bias):
        once = ops.fused_bias_gelu(x + 1.0, bias, approximate)  # x + 1.0 dies here: in place
        shared = x * 2.0  # lives on: must not be overwritten
        return once, ops.fused_bias_gelu(shared, bias, approximate) + shared

    with ops.backend(backend):
        once, twice = chain(x, bias)
        expected_once = ops.fused_bias_gelu(x + 1.0, bias, approximate)
        expected_twice = ops.fused_bias_gelu(x * 2.0, bias, approximate) + x * 2.0
    np.testing.assert_allclose(once, expected_once, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(twice, expected_twice, rtol=1e-6, atol=1e-6)


def test_saved_model_is_differentiable_after_loading(backend, approximate, tmp_path):
    x, bias, _, s = _inputs((3, 10), tf.float32)

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.bias = tf.Variable(bias)

        @tf.function(input_signature=[tf.TensorSpec([None, 10], tf.float32)])
        def __call__(self, x):
            return ops.fused_bias_gelu(x, self.bias, approximate)

    with ops.backend(backend):
        tf.saved_model.save(Module(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded(x)
    dx, dbias = tape.gradient(y, [x, loaded.bias])
    np.testing.assert_allclose(y, gelu(s, approximate), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(dx, gelu_slope(s, approximate), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dbias, gelu_slope(s, approximate).sum(0), rtol=1e-5, atol=1e-6)


def test_takes_arrays_and_variables(backend, approximate):
    with ops.backend(backend):
        y = ops.fused_bias_gelu(np.ones([2, 3], np.float32), tf.Variable([0.0, 1.0, 2.0]),
                                approximate)  # fmt: skip
        z = ops.fused_bias_gelu([[1.0, 1.0, 1.0]], [0.0, 1.0, 2.0], approximate)
    np.testing.assert_array_equal(y[:1], z)


def test_errors_say_what_was_expected_and_received(backend, approximate):
    with ops.backend(backend):
        with pytest.raises(ValueError, match=r"bias of shape \[3\].*Received.*\(2,\)"):
            ops.fused_bias_gelu(tf.zeros([4, 3]), tf.zeros([2]), approximate)
        with pytest.raises(ValueError, match=r"bias of shape \[3\].*Received.*\(1, 3\)"):
            ops.fused_bias_gelu(tf.zeros([4, 3]), tf.zeros([1, 3]), approximate)
        with pytest.raises(ValueError, match="Received: a scalar"):
            ops.fused_bias_gelu(tf.zeros([]), tf.zeros([1]), approximate)
        with pytest.raises(TypeError, match="Received: x of dtype float64"):
            ops.fused_bias_gelu(np.zeros([4, 3]), tf.zeros([3]), approximate)
        with pytest.raises(TypeError, match="dtype of x, float32.*Received: bias of dtype bfloat"):
            ops.fused_bias_gelu(tf.zeros([4, 3]), tf.zeros([3], tf.bfloat16), approximate)


def test_twin_under_xla(backend, approximate):
    del backend
    x, bias, dy, s = _inputs((6, 20), tf.float32)

    @tf.function(jit_compile=True)
    def value_and_gradient(x, bias, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ops.fused_bias_gelu_reference(x, bias, approximate)
        return y, tape.gradient(y, x, output_gradients=dy)

    y, dx = value_and_gradient(x, bias, dy)
    np.testing.assert_allclose(y, gelu(s, approximate), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(dx, dy * gelu_slope(s, approximate), rtol=1e-5, atol=1e-6)
