"""The loss against its formula in NumPy and against Keras's losses of one idea each."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import PADDING_LOGIT
from bert_tf.errors import DataError, UserError
from bert_tf.training import SparseCrossentropy, balanced_class_weights

GENERATOR = np.random.default_rng(0)
LOGITS = GENERATOR.normal(size=(6, 4)).astype(np.float32)
IDS = np.array([0, 3, 1, 1, 2, 0])
ONE_HOT = np.eye(4)[IDS]


def close(loss, expected):
    np.testing.assert_allclose(loss(IDS, LOGITS), expected(ONE_HOT, LOGITS), rtol=1e-5)


def test_one_idea_at_a_time_is_kerass():
    softmax = keras.ops.softmax
    close(SparseCrossentropy(), keras.losses.CategoricalCrossentropy(from_logits=True))
    close(
        SparseCrossentropy(label_smoothing=0.2),
        keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2),
    )
    focal = keras.losses.CategoricalFocalCrossentropy(alpha=1.0, gamma=2.0)
    close(SparseCrossentropy(focal_gamma=2.0), lambda y, x: focal(y, softmax(x)))


def test_all_together_on_tokens():
    weights = np.array([1.0, 2.0, 0.5, 3.0])
    logits, ids = LOGITS.reshape(2, 3, 4), IDS.reshape(2, 3).copy()
    ids[0, 0] = -100
    losses = SparseCrossentropy(0.1, 1.5, weights, reduction=None)(ids, logits)
    p = np.exp(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
    classes = np.maximum(ids, 0)
    targets = 0.9 * np.eye(4)[classes] + 0.1 / 4
    expected = -(targets * (1 - p) ** 1.5 * np.log(p)).sum(-1) * weights[classes] * (ids >= 0)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_certain_rows_have_a_gradient():
    logits = tf.Variable([[200.0, 0.0, 0.0]])
    for gamma in (0.5, 1.0, 2.0):
        with tf.GradientTape() as tape:
            loss = SparseCrossentropy(focal_gamma=gamma)([0], logits)
        np.testing.assert_array_equal(tape.gradient(loss, logits), np.zeros([1, 3]))


def test_padding_is_no_class():
    """Of a window's tokens the last are padding: as if they were not there."""
    padded = np.concatenate([LOGITS, np.full([6, 3], PADDING_LOGIT)], axis=1).astype(np.float32)
    for options in ({"label_smoothing": 0.1}, {"focal_gamma": 2.0, "label_smoothing": 0.3}):
        loss = SparseCrossentropy(**options)
        np.testing.assert_allclose(loss(IDS, padded), loss(IDS, LOGITS), rtol=1e-6)


def test_saved_and_checked():
    loss = SparseCrossentropy(0.1, 2.0, [1, 2, 3, 4])
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(again(IDS, LOGITS)) == float(loss(IDS, LOGITS))
    with pytest.raises(UserError, match="each of the 4 classes"):
        SparseCrossentropy(class_weights=[1, 2])(IDS, LOGITS)
    with pytest.raises(UserError, match="label_smoothing=1.0"):
        SparseCrossentropy(label_smoothing=1.0)


def test_balanced_weights():
    assert balanced_class_weights(np.array([0, 0, 0, 1, -1]), 3) == [4 / 9, 4 / 3, 0.0]
    with pytest.raises(DataError, match="the largest one is 5"):
        balanced_class_weights(np.array([5]), 3)
