"""FLOPS regularization against NumPy, its thresholds and its warm-up, and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.tasks.sparse_embedding import SpladeLoss
from bert_tf.training import (
    CachedMultipleNegativesRankingLoss,
    ClassificationLoss,
    MarginMSELoss,
    MultipleNegativesRankingLoss,
)


def vectors(rows=5, num_texts=3, size=8):
    """Non-negative vectors, half of them zeros."""
    values = np.random.default_rng(0).standard_normal([rows, num_texts, size])
    return np.maximum(values, 0.0)


def losses_of(loss, values, labels=None):
    return loss.losses(labels, loss.outputs(tf.constant(values, tf.float32))).numpy()


def flops(values, threshold=None):
    """Of vectors `[n, V]`."""
    if threshold is not None:
        values = values * (np.count_nonzero(values, axis=1, keepdims=True) > threshold)
    return np.sum(values.mean(axis=0) ** 2)


@pytest.mark.parametrize("threshold", [None, 0, 4])
@pytest.mark.parametrize("num_texts", [2, 3])
def test_flops_are_added_to_the_loss(num_texts, threshold):
    values = vectors(num_texts=num_texts)
    scores = values[:, 0] @ np.concatenate([values[:, k] for k in range(1, num_texts)]).T
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))
    expected += 0.7 * flops(values[:, 0], threshold)
    expected += 0.3 * flops(values[:, 1:].reshape(-1, values.shape[-1]), threshold)
    loss = SpladeLoss(None, 0.3, 0.7, threshold, threshold)
    np.testing.assert_allclose(losses_of(loss, values).mean(), expected, rtol=1e-5)
    hits = loss.hits(None, loss.outputs(tf.constant(values)))
    np.testing.assert_array_equal(hits, np.diag(scores) >= scores.max(axis=1))


def test_the_loss_that_compares_the_vectors():
    values, labels = vectors(), np.linspace(-1.0, 1.0, 5)
    loss = SpladeLoss(MarginMSELoss(), 0.0, 0.0)
    assert loss.needs_labels and loss.num_texts == (3, ...) and not loss.has_hits
    expected = losses_of(MarginMSELoss(), values, labels)
    np.testing.assert_allclose(losses_of(loss, values, labels), expected, rtol=1e-6)
    cached = CachedMultipleNegativesRankingLoss(1.0, mini_batch_size=4, similarity="dot")
    assert SpladeLoss(cached).mini_batch_size == 4
    assert "MarginMSELoss" in loss.description()
    loss.build(8, 0.02)


def test_the_weights_grow():
    values = vectors()
    without, whole = (losses_of(SpladeLoss(None, w, w), values) for w in (0.0, 1.0))
    loss = SpladeLoss(None, 1.0, 1.0, warmup_steps=4)
    np.testing.assert_allclose(losses_of(loss, values), whole, rtol=1e-6)  # in no training
    for step, share in ((0, 0.0), (1, 1 / 16), (2, 1 / 4), (4, 1.0), (9, 1.0)):
        loss.step = tf.Variable(step)
        expected = without + share * (whole - without)
        np.testing.assert_allclose(losses_of(loss, values), expected, rtol=1e-5)


def test_a_replica_without_rows():
    with tf.GradientTape() as tape:
        variable = tf.Variable(vectors()[:0].astype(np.float32))
        weight = tf.Variable(1.0)
        loss = SpladeLoss(None, 1.0, 1.0)
        total = tf.reduce_sum(loss.losses(None, loss.outputs(variable * weight)))
    assert total == 0.0 and tape.gradient(total, weight) == 0.0


def test_ranking_by_dot_product():
    values = vectors(num_texts=2)
    scores = 2.0 * values[:, 0] @ values[:, 1].T
    expected = np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)
    loss = MultipleNegativesRankingLoss(2.0, similarity="dot")
    np.testing.assert_allclose(losses_of(loss, values), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SpladeLoss(None, -1.0), "`document_regularizer_weight` and"),
        (lambda: SpladeLoss(query_regularizer_weight=float("nan")), "must be at least 0"),
        (lambda: SpladeLoss(query_regularizer_threshold=-1), "`query_regularizer_threshold`"),
        (lambda: SpladeLoss(warmup_steps=0.5), "`warmup_steps` must be an integer"),
        (lambda: SpladeLoss("pairs"), "`objective` must be one of"),
        (lambda: SpladeLoss(ClassificationLoss()).build(8, 0.02), "no variables"),
        (lambda: MultipleNegativesRankingLoss(similarity="l2"), "`similarity` must"),
    ],
)
def test_settings_without_meaning_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
