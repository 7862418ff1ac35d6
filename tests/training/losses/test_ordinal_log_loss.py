"""The loss of classes with an order, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import PADDING_LOGIT
from bert_tf.errors import UserError
from bert_tf.training import OrdinalLogLoss


def expected_losses(ids, logits, alpha):
    logits = logits.astype(np.float64)
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    steps = np.abs(ids[..., np.newaxis] - np.arange(logits.shape[-1])).astype(np.float64)
    terms = steps**alpha * np.log(1 - shares, out=np.zeros_like(shares), where=steps > 0)
    return -terms.sum(axis=-1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 7), (0, 3), (4, 2)])
def test_against_numpy(shape, alpha, dtype):
    random = np.random.default_rng(len(shape))
    logits = random.normal(size=shape, scale=2.0).astype(dtype)
    ids = random.integers(0, shape[-1], shape[:-1])
    found = OrdinalLogLoss(alpha).call(tf.constant(ids), tf.constant(logits))
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected_losses(ids, logits, alpha), rtol=1e-4, atol=1e-5)


def test_farther_classes_cost_more():
    logits = 4.0 * np.eye(4, dtype=np.float32)
    losses = OrdinalLogLoss().call(tf.zeros([4], tf.int32), tf.constant(logits)).numpy()
    assert (np.diff(losses) > 0).all()


def test_certain_answers_weights_and_rows_without_a_class():
    """A probability that rounds to 1 has a finite loss and gradient."""
    logits = tf.Variable([[200.0, 0.0, 0.0], [0.0, 0.0, 200.0], [0.0, 3.0, PADDING_LOGIT]])
    with tf.GradientTape() as tape:
        losses = OrdinalLogLoss(1.0).call(tf.constant([0, 0, 0]), logits)
    np.testing.assert_allclose(losses, [0.0, 2 * (200 - np.log(2)), 3.04859], rtol=1e-5, atol=1e-6)
    assert np.isfinite(tape.gradient(losses, logits)).all()
    assert np.isnan(OrdinalLogLoss().call(tf.constant([0]), tf.constant([[np.nan, 0.0]])))
    loss = OrdinalLogLoss(1.0, class_weights=[1.0, 3.0, 2.0])
    weighted = loss.call(tf.constant([-100, 1, 2]), logits)
    plain = OrdinalLogLoss(1.0).call(tf.constant([0, 1, 2]), logits)
    np.testing.assert_allclose(weighted, plain * [0.0, 3.0, 2.0], rtol=1e-6)


def test_it_is_kept_in_files():
    loss = OrdinalLogLoss(2.0, class_weights=[1.0, 2.0])
    config = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(config)
    assert (again.alpha, again.class_weights) == (2.0, [1.0, 2.0])
    for alpha in (0.0, -1.0, float("nan")):
        with pytest.raises(UserError, match="`alpha` must be positive"):
            OrdinalLogLoss(alpha)
