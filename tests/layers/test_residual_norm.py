"""ResidualLayerNorm: LayerNorm(residual + dropout(x + bias))."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers import ResidualLayerNorm
from tests.layers import float64

# Widths below, at and above the vectors of every instruction set, and one row or none.
SHAPES = [(1, 8), (3, 7), (5, 16), (2, 37), (0, 8)]
SEED = tf.constant(5, tf.int64)


def made(width, **options):
    layer = ResidualLayerNorm(**options)
    layer.build([None, width])
    float64.randomize(layer)
    return layer


def formula(weights, x, residual=0.0, bias=0.0):
    return float64.layer_norm(residual + x + bias, weights["gamma"], weights["beta"])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("parts", [1, 2, 3], ids=["x", "residual", "residual and bias"])
def test_rows_and_gradients(shape, parts):
    random = np.random.default_rng(2)
    inputs = [random.normal(size=shape), random.normal(size=shape), random.normal(size=shape[1])]
    layer = made(shape[1])
    float64.assert_right(layer, layer, formula, inputs[:parts])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_rows_and_gradients(shape):
    def formula(weights, x):
        mean = (x**2).mean(axis=-1, keepdims=True)
        return weights["gamma"] * x / np.sqrt(mean + float64.EPSILON)

    layer = made(shape[1], is_rms=True, use_bias=False)
    float64.assert_right(layer, layer, formula, [np.random.default_rng(2).normal(size=shape) + 0.5])


def test_a_new_layer_only_normalizes():
    layer = ResidualLayerNorm()
    x = np.random.default_rng(2).normal(size=(3, 7))
    expected = float64.layer_norm(x, np.ones(7), np.zeros(7))
    float64.assert_near(layer(tf.constant(x, tf.float32)), expected)


def test_constant_rows_are_beta():
    layer = made(8)
    rows = layer(tf.constant([[3.0] * 8, [-1e6] * 8, [0.0] * 8]))
    np.testing.assert_allclose(rows, np.tile(layer.beta, [3, 1]), atol=1e-5)


def test_far_from_zero_the_variance_is_right():
    layer = made(16)
    x = 1e4 + np.random.default_rng(2).normal(size=[4, 16])
    x = x.astype(np.float32).astype(np.float64)
    expected = formula(float64.weights_of(layer), x)
    float64.assert_near(layer(tf.constant(x, tf.float32)), expected, 2e-3)


def test_dropout_before_the_residual_and_only_in_training():
    layer = made(64, dropout_rate=0.25)
    x, residual = tf.ones([50, 64]), tf.zeros([50, 64])
    layer.gamma.assign(tf.ones([64]))
    layer.beta.assign(tf.zeros([64]))
    np.testing.assert_allclose(layer(x, residual), 0, atol=1e-5)  # constant rows: no dropout
    dropped = layer(x, residual, training=True).numpy()
    zeros = dropped < 0  # below the mean of the row: these were dropped, the others scaled by 4/3
    assert 0.2 < zeros.mean() < 0.3
    again = layer(x, residual, training=True).numpy()
    assert not np.array_equal(dropped, again)


def test_a_seed_decides_the_mask():
    layer = made(16, dropout_rate=0.5)
    x, residual = tf.ones([4, 16]), tf.zeros([4, 16])
    np.testing.assert_array_equal(
        layer(x, residual, training=True, dropout_seed=SEED),
        layer(x, residual, training=True, dropout_seed=SEED),
    )
    same = [made(16, dropout_rate=0.5, seed=1)(x, residual, training=True) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert made(16).seed_generator is None


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_computes_sums_in_float32(dtype):
    layer = made(32, dtype=dtype)
    x = tf.cast(200 + tf.random.stateless_normal([3, 32], [0, 0]), layer.compute_dtype)
    rows = layer(x, residual=tf.zeros_like(x))
    assert rows.dtype == layer.compute_dtype and layer.gamma.dtype == "float32"
    expected = formula(float64.weights_of(layer), tf.cast(x, tf.float64).numpy())
    float64.assert_near(rows, expected, 2e-2 if "bfloat" in dtype else 3e-3)


def test_config_round_trip():
    layer = ResidualLayerNorm(epsilon=1e-6, dropout_rate=0.1, seed=4, name="norm")
    again = float64.again(layer)
    assert again.get_config() == layer.get_config()
    assert (again.epsilon, again.dropout_rate, again.seed) == (1e-6, 0.1, 4)


def test_epsilon_is_added_to_the_variance():
    layer = made(4, epsilon=3.0)
    x = np.array([[1.0, -1.0, 1.0, -1.0]])  # variance 1
    expected = layer.gamma.numpy() * x / 2 + layer.beta.numpy()
    np.testing.assert_allclose(layer(tf.constant(x, tf.float32)), expected, rtol=1e-5)
