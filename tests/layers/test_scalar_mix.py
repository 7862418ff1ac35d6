"""ScalarMix against the formula in float64, its gradient, its learning."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers import ScalarMix


@pytest.mark.parametrize("layer_norm", [False, True])
def test_against_the_formula(layer_norm):
    rng = np.random.default_rng(0)
    states = rng.normal(2, 3, (3, 2, 5, 8))
    states[:, 1, 3:] = 0  # padding
    mix = ScalarMix(layer_norm)
    mix([tf.constant(state, tf.float32) for state in states])
    mix.scalars.assign([0.3, -1.0, 2.0])
    mix.gamma.assign([1.7])
    shares = np.exp([0.3, -1.0, 2.0]) / np.exp([0.3, -1.0, 2.0]).sum()
    inner = states
    if layer_norm:
        centred = states - states.mean(-1, keepdims=True)
        inner = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    expected = 1.7 * np.einsum("k,kbth->bth", shares, inner)
    found = mix([tf.constant(state, tf.float32) for state in states])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(found[1, 3:], 0)


def test_learns_which_layer_matters_and_saves(tmp_path):
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(64, 4)).astype(np.float32) for _ in range(3)]
    inputs = [keras.Input([4]) for _ in range(3)]
    model = keras.Model(inputs, ScalarMix()(inputs))
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(states, 2 * states[1], epochs=60, verbose=0)
    shares = tf.nn.softmax(model.layers[-1].scalars)
    assert shares[1] > 0.9 and abs(model.layers[-1].gamma.numpy()[0] - 2) < 0.2
    model.save(tmp_path / "mix.keras")
    again = keras.models.load_model(tmp_path / "mix.keras")
    np.testing.assert_array_equal(again(states), model(states))
