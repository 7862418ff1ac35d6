"""StackedLSTM against the formulas in float64, with padding anywhere, and its refusals."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.layers import StackedLSTM
from tests.layers.float64 import again, randomize, stacked_lstm

# Right, left, in the middle, several gaps, one token, no token.
MASK = np.array(
    [
        [1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1],
        [1, 1, 0, 0, 0, 1, 1],
        [0, 1, 0, 1, 0, 1, 0],
        [0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1],
    ],
    bool,
)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("units", [3, [4, 3]])
def test_against_the_formulas(units, bidirectional):
    states = np.random.default_rng(0).normal(size=[*MASK.shape, 5])
    states[~MASK] = 1e3  # must not be read
    layer = StackedLSTM(units, bidirectional, dtype="float64")
    layer.build([None, None, 5])
    for variable in layer.weights:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    outputs = layer(tf.constant(states), tf.constant(MASK))
    assert outputs.dtype == tf.float64 and outputs.shape == (7, 7, layer.width)
    assert layer.compute_output_shape(states.shape) == outputs.shape
    np.testing.assert_array_equal(outputs.numpy()[~MASK], 0.0)
    final = layer.final_states(outputs, tf.constant(MASK)).numpy()
    for row, mask in enumerate(MASK):
        expected, last = stacked_lstm(layer.blocks, states[row, mask])
        np.testing.assert_allclose(outputs[row][mask], expected, rtol=1e-12, atol=1e-12)
        last = last if mask.any() else np.zeros([1, layer.width])
        np.testing.assert_allclose(final[row : row + 1], last, rtol=1e-12, atol=1e-12)
    function = tf.function(
        layer,
        input_signature=[
            tf.TensorSpec([None, None, 5], tf.float64),
            tf.TensorSpec([None, None], tf.bool),
        ],
    )
    np.testing.assert_allclose(function(states, MASK), outputs, rtol=1e-12, atol=1e-12)
    for rows, length in ((0, 7), (7, 0), (0, 0)):
        empty = tf.zeros([rows, length, 5], tf.float64), tf.zeros([rows, length], tf.bool)
        for call in (layer, function):
            assert call(*empty).shape == (rows, length, layer.width)


def test_gradient():
    """Gradients of the loss equal differences in float64, and padding gets none."""
    states = np.random.default_rng(0).normal(size=[*MASK.shape, 5])
    layer = StackedLSTM([4, 3], dtype="float64")
    layer.build([None, None, 5])
    weights = np.random.default_rng(2).normal(size=[*MASK.shape, layer.width])

    @tf.function
    def loss(values):
        return tf.reduce_sum(weights * layer(values, tf.constant(MASK)))

    values = tf.constant(states)
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = loss(values)
    gradient, *others = tape.gradient(total, [values, *layer.trainable_weights])
    np.testing.assert_array_equal(gradient.numpy()[~MASK], 0.0)
    way = np.random.default_rng(3).normal(size=states.shape)
    slope = (loss(values + 1e-6 * way) - loss(values - 1e-6 * way)) / 2e-6
    np.testing.assert_allclose(np.sum(gradient * way), slope, rtol=1e-6)
    for variable, gradient in zip(layer.trainable_weights, others, strict=True):
        at, way = variable.numpy(), np.random.default_rng(4).normal(size=variable.shape)
        ends = []
        for step in (1e-6, -1e-6):
            variable.assign(at + step * way)
            ends.append(loss(values))
        variable.assign(at)
        slope = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(np.sum(gradient * way), slope, rtol=1e-5, err_msg=variable.path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_bfloat16", "mixed_float16"])
def test_low_precision(dtype):
    states = np.random.default_rng(0).normal(size=[*MASK.shape, 5]).astype(np.float32)
    layer, exact = StackedLSTM([4, 3], dtype=dtype), StackedLSTM([4, 3])
    for one in (layer, exact):
        one.build([None, None, 5])
    for mine, theirs in zip(layer.weights, exact.weights, strict=True):
        mine.assign(tf.cast(theirs, mine.dtype))
    outputs = layer(states, tf.constant(MASK))
    assert outputs.dtype == layer.compute_dtype
    expected = exact(states, tf.constant(MASK))
    np.testing.assert_allclose(tf.cast(outputs, tf.float32), expected, atol=0.03)


def test_xla():
    states = tf.random.stateless_normal([*MASK.shape, 5], [1, 2])
    layer = StackedLSTM(3)
    expected = layer(states, tf.constant(MASK))
    compiled = tf.function(lambda: layer(states, tf.constant(MASK)), jit_compile=True)
    np.testing.assert_allclose(compiled(), expected, atol=1e-6)


def test_is_saved(tmp_path):
    layer = StackedLSTM([4, 3], bidirectional=False)
    layer.build([None, None, 5])
    randomize(layer)
    config = again(layer).get_config()
    assert (config["units"], config["bidirectional"]) == ([4, 3], False)
    inputs = keras.Input([7, 5]), keras.Input([7], dtype="bool")
    model = keras.Model(inputs, layer(*inputs))
    model.save(tmp_path / "lstm.keras")
    states = np.ones([*MASK.shape, 5], np.float32)
    opened = keras.models.load_model(tmp_path / "lstm.keras")
    np.testing.assert_array_equal(opened([states, MASK]), model([states, MASK]))


@pytest.mark.parametrize("units", [0, -3, True, 2.5, [], [4, 0], [4, "3"], "8", None])
def test_units_that_are_refused(units):
    with pytest.raises(UserError, match="`units` must be a positive integer or a list"):
        StackedLSTM(units)
