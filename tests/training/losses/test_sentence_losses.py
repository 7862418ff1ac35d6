"""The losses of sentence encoders against NumPy, and what they refuse."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training import SparseCrossentropy
from bert_tf.training.losses.sentence_losses import (
    SENTENCE_LOSSES,
    CachedMultipleNegativesRankingLoss,
    ClassificationLoss,
    CosineRegressionLoss,
    MarginMSELoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    TripletLoss,
    sentence_loss,
)


def vectors(num_texts, rows=5, size=4):
    return np.random.default_rng(num_texts).standard_normal([rows, num_texts, size])


def of(loss, values, labels=None):
    outputs = loss.outputs(tf.constant(values, tf.float32))
    hits = loss.hits(labels, outputs)
    return loss.losses(labels, outputs).numpy(), None if hits is None else hits.numpy()


def cosine(u, v):
    return np.sum(u * v, -1) / np.linalg.norm(u, axis=-1) / np.linalg.norm(v, axis=-1)


def test_classification():
    values, labels = vectors(2), np.array([0, 2, 1, 1, 0])
    loss = ClassificationLoss(3)
    loss.build(4, 0.5)
    kernel, bias = (variable.numpy() for variable in loss.variables)
    u, v = values[:, 0], values[:, 1]
    logits = np.concatenate([u, v, np.abs(u - v)], axis=1) @ kernel + bias
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(5), labels]
    losses, hits = of(loss, values, labels)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_array_equal(hits, logits.argmax(1) == labels)
    smoothed = SparseCrossentropy(label_smoothing=0.2, class_weights=[1.0, 2.0, 3.0])
    loss.loss = smoothed
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    shares = 0.8 * np.eye(3)[labels] + 0.2 / 3
    np.testing.assert_allclose(
        of(loss, values, labels)[0], -(shares * log_p).sum(1) * (labels + 1), rtol=1e-5
    )


def test_cosine_regression():
    values, labels = vectors(2), np.linspace(-1, 1, 5)
    losses, hits = of(CosineRegressionLoss(), values, labels)
    np.testing.assert_allclose(
        losses, (cosine(values[:, 0], values[:, 1]) - labels) ** 2, rtol=1e-5
    )
    assert hits is None


@pytest.mark.parametrize("num_texts", [2, 3])
def test_ranking(num_texts):
    values = vectors(num_texts)
    candidates = np.concatenate([values[:, k] for k in range(1, num_texts)])
    scores = 7.0 * np.array([[cosine(a, c) for c in candidates] for a in values[:, 0]])
    expected = np.log(np.exp(scores).sum(1)) - scores[np.arange(5), np.arange(5)]
    losses, hits = of(MultipleNegativesRankingLoss(scale=7.0), values)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_array_equal(hits, scores.argmax(1) == np.arange(5))
    losses, _ = of(MultipleNegativesRankingLoss(), values[:0])
    assert losses.shape == (0,)


@pytest.mark.parametrize("num_texts", [2, 3])
def test_symmetric_ranking(num_texts):
    values = vectors(num_texts)
    scores = 20.0 * np.array([[cosine(a, b) for b in values[:, 1]] for a in values[:, 0]])
    backward = np.log(np.exp(scores).sum(0)) - np.diag(scores)
    forward, _ = of(MultipleNegativesRankingLoss(), values)
    losses, _ = of(MultipleNegativesRankingLoss(symmetric=True), values)
    np.testing.assert_allclose(losses, (forward + backward) / 2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_margin_mse(similarity):
    values, labels = vectors(3), np.linspace(-2, 2, 5)
    similar = cosine if similarity == "cosine" else lambda u, v: np.sum(u * v, -1)
    query, fit, other = np.moveaxis(values, 1, 0)
    expected = (similar(query, fit) - similar(query, other) - labels) ** 2
    losses, hits = of(MarginMSELoss(similarity), values, labels)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)
    assert hits is None


def test_matryoshka():
    values = vectors(2)
    loss = MatryoshkaLoss("ranking", dims=[4, 2], weights=[1.0, 0.5])
    loss.build(4, 0.02)
    parts = [of(MultipleNegativesRankingLoss(), values[..., :dim]) for dim in (4, 2)]
    losses, hits = of(loss, values)
    np.testing.assert_allclose(losses, parts[0][0] + 0.5 * parts[1][0], rtol=1e-5)
    np.testing.assert_array_equal(hits, parts[0][1])
    assert "MultipleNegativesRankingLoss" in loss.description() and "[4, 2]" in loss.description()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MatryoshkaLoss("ranking", dims=[]), "`dims` must be positive"),
        (lambda: MatryoshkaLoss("ranking", dims=[4, 0]), "`dims` must be positive"),
        (lambda: MatryoshkaLoss("ranking", dims=[4], weights=[1, 2]), "for each of `dims`"),
        (lambda: MatryoshkaLoss("ranking", dims=[8]).build(4, 0.02), "up to the size .*4"),
        (lambda: MatryoshkaLoss("classification", dims=[4]).build(4, 0.02), "without variables"),
        (lambda: MarginMSELoss("euclidean"), "`similarity` must be"),
        (lambda: CachedMultipleNegativesRankingLoss(mini_batch_size=0), "at least 1"),
    ],
)
def test_settings_without_meaning_are_told(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_triplet(distance):
    values = vectors(3)
    values[0, 1] = values[0, 0]  # the same text twice
    anchor, positive, negative = np.moveaxis(values, 1, 0)
    if distance == "cosine":
        near, far = 1 - cosine(anchor, positive), 1 - cosine(anchor, negative)
    else:
        near, far = (np.linalg.norm(anchor - other, axis=1) for other in (positive, negative))
    loss = TripletLoss(distance, margin=0.7)
    losses, hits = of(loss, values)
    np.testing.assert_allclose(losses, np.maximum(near - far + 0.7, 0), atol=1e-5)
    np.testing.assert_array_equal(hits, near < far)
    with tf.GradientTape() as tape:
        variable = tf.constant(values, tf.float32)
        tape.watch(variable)
        total = tf.reduce_sum(loss.losses(None, loss.outputs(variable)))
    assert np.isfinite(tape.gradient(total, variable)).all()


def test_names_and_refusals():
    for name, loss in SENTENCE_LOSSES.items():
        assert type(sentence_loss(name)) is loss
    own = TripletLoss(margin=2.0)
    assert sentence_loss(own) is own
    for make in (
        lambda: sentence_loss("pairs"),
        lambda: ClassificationLoss(1),
        lambda: MultipleNegativesRankingLoss(0.0),
        lambda: TripletLoss("manhattan"),
        lambda: TripletLoss(margin=-1.0),
        lambda: own.check(2, False),
        lambda: own.check(3, True),
    ):
        with pytest.raises(UserError, match="Received"):
            make()
