"""The losses of sentence encoders against NumPy, and what they refuse."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import training
from bert_tf.errors import UserError
from bert_tf.training import (
    CachedMultipleNegativesRankingLoss,
    ClassificationLoss,
    CosineRegressionLoss,
    MarginMSELoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    SparseCrossentropy,
    TripletLoss,
)
from bert_tf.training.losses.sentence_loss import SENTENCE_LOSSES, sentence_loss


def vectors(num_texts, rows=5, size=4):
    return np.random.default_rng(num_texts).standard_normal([rows, num_texts, size])


def of(loss, values, labels=None):
    """The losses and the hits, and None where a loss has no hits."""
    labels = None if labels is None else tf.convert_to_tensor(labels)
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
    assert not np.array_equal(hits, parts[1][1])
    upwards = of(MatryoshkaLoss("ranking", dims=[2, 4], weights=[0.5, 1.0]), values)
    np.testing.assert_array_equal(hits, upwards[1])
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
def test_settings_without_meaning_are_refused(make, message):
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
        assert type(sentence_loss(name)) is getattr(training.losses, loss)
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


def test_classification_with_a_hidden_layer():
    values, labels = vectors(2), np.array([0, 2, 1, 1, 0])
    loss = ClassificationLoss(3, hidden_size=16, dropout=0.5)
    loss.build(4, 0.5)
    hidden, hidden_bias, kernel, bias = (variable.numpy() for variable in loss.variables)
    loss.variables[1].assign(hidden_bias + 0.1)
    u, v = values[:, 0], values[:, 1]
    features = np.concatenate([u, v, np.abs(u - v)], axis=1) @ hidden + 0.1
    features = np.maximum(features, 0)  # [B, 16]
    logits = features @ kernel + bias
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(5), labels]
    losses, hits = of(loss, values, labels)  # without dropout
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_array_equal(hits, logits.argmax(1) == labels)
    # Dropout makes some features 0 and the others twice as large, and chooses anew in each step.
    loss.classifier.kernel.assign(np.eye(16, 3))
    seen = []
    for step in (0, 1, 1):
        loss.set_step(tf.Variable(step))
        found = loss.training_outputs(tf.constant(values, tf.float32)).numpy()
        given = features[:, :3]
        is_kept = np.isclose(found, 2 * given, rtol=1e-5)
        assert np.all(is_kept | (found == 0)) and is_kept[given > 0].any()
        seen.append(found)
    assert np.any(seen[0] != seen[1]) and np.all(seen[1] == seen[2])


def test_ranking_with_many_texts():
    """All further texts are negatives of all examples; or only of their own one."""
    values = vectors(5)
    candidates = np.concatenate([values[:, k] for k in range(1, 5)])
    scores = 7.0 * np.array([[cosine(a, c) for c in candidates] for a in values[:, 0]])
    expected = np.log(np.exp(scores).sum(1)) - scores[np.arange(5), np.arange(5)]
    losses, hits = of(MultipleNegativesRankingLoss(7.0), values)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_array_equal(hits, scores.argmax(1) == np.arange(5))
    own = 7.0 * cosine(values[:, :1], values[:, 1:])  # [B, 4]
    expected = np.log(np.exp(own).sum(1)) - own[:, 0]
    loss = MultipleNegativesRankingLoss(7.0, in_batch_negatives=False)
    losses, hits = of(loss, values)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_array_equal(hits, own.argmax(1) == 0)
    assert of(loss, values[:0])[0].shape == (0,)
    loss.check(3, False)
    loss.check(9, False)
    MultipleNegativesRankingLoss().check(9, False)
    with pytest.raises(UserError, match="must have 3 or more texts and no label"):
        loss.check(2, False)


@pytest.mark.parametrize("num_texts", [pytest.param(2, marks=pytest.mark.full), 4])
def test_sampled_negatives(num_texts):
    """The positive and k others; over the steps, each of the others equally often."""
    values = tf.constant(vectors(num_texts, rows=6), tf.float32)
    loss = MultipleNegativesRankingLoss(num_negatives=3)
    everything = loss.outputs(values).numpy()  # [6, (K - 1) 6]
    counts = np.zeros_like(everything)
    for step in range(400):
        loss.set_step(tf.constant(step))
        found = loss.training_outputs(values).numpy()
        is_there = np.isfinite(found)
        np.testing.assert_array_equal(is_there.sum(1), 4)
        assert np.isfinite(np.diag(found)).all()
        np.testing.assert_array_equal(found[is_there], everything[is_there])
        counts += is_there
    others = counts[~np.eye(*counts.shape, dtype=bool)] / 400
    share = 3 / (everything.shape[1] - 1)
    np.testing.assert_allclose(others, share, atol=5 * np.sqrt(share * (1 - share) / 400))
    losses = loss.losses(None, tf.constant(found)).numpy()
    expected = np.log(np.exp(found).sum(1)) - np.diag(found)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = tf.reduce_sum(loss.losses(None, loss.training_outputs(values)))
    assert np.isfinite(tape.gradient(total, values)).all()
    few = MultipleNegativesRankingLoss(num_negatives=100)
    np.testing.assert_array_equal(few.training_outputs(values), everything)
    assert few.training_outputs(values[:0]).shape[0] == 0
    wrapped = MatryoshkaLoss(loss, dims=[4, 2])
    wrapped.set_step(tf.constant(5))
    whole, part = (np.isfinite(each) for each in wrapped.training_outputs(values))
    assert whole.sum() == 24
    np.testing.assert_array_equal(whole, part)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ClassificationLoss(hidden_size=0), "`hidden_size` must be a positive integer"),
        (lambda: ClassificationLoss(hidden_size=2.5), "`hidden_size` must be a positive integer"),
        (lambda: ClassificationLoss(dropout=1.0), r"`dropout` must be in \[0, 1\)"),
        (lambda: MultipleNegativesRankingLoss(num_negatives=0), "`num_negatives` must be a pos"),
        (
            lambda: MultipleNegativesRankingLoss(symmetric=True, in_batch_negatives=False),
            "`in_batch_negatives` must be True with `symmetric`",
        ),
        (
            lambda: MultipleNegativesRankingLoss(num_negatives=2, in_batch_negatives=False),
            "`in_batch_negatives` must be True with `symmetric`",
        ),
    ],
)
def test_options_that_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
