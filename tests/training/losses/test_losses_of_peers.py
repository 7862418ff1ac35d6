"""The losses of sentence encoders give the numbers of sentence-transformers 6.2.

The references are the value and the norm of the gradient that
`loss.compute_loss_from_embeddings(vectors, labels)` of its loss of the same name printed, in
float64, for `np.random.default_rng(K).standard_normal([6, K, D])`. Its `distance_metric` are
`SiameseDistanceMetric` and `BatchHardTripletLossDistanceFunction`.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import DataError, UserError
from bert_tf.training import (
    AnglELoss,
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    BatchSemiHardTripletLoss,
    ContrastiveLoss,
    CoSENTLoss,
    MarginMSELoss,
    MatryoshkaLoss,
    OnlineContrastiveLoss,
)

SCORES = [0.1, 0.9, 0.5, 0.5, 0.0, 1.0]
SAME = [1, 0, 1, 1, 0, 0]
CLASSES = [0, 1, 0, 2, 1, 0]
HALVES = [0, 0, 0, 1, 1, 1]
TEACHER = np.random.default_rng(9).standard_normal([6, 3])
TEACHER_OF_TWO = np.random.default_rng(9).standard_normal([6, 2])

CASES = {
    # A loss, K, D, the labels, the value and the norm of the gradient.
    "CoSENT": (CoSENTLoss(), 2, 5, SCORES, 14.5483655, 16.9780080),
    "AnglE": (AnglELoss(), 2, 5, SCORES, 17.2746229, 20.5869021),
    "AnglE, an even size": (AnglELoss(), 2, 4, SCORES, 18.0794656, 38.8971490),
    "contrastive": (ContrastiveLoss("cosine", 1.5), 2, 5, SAME, 0.2871967, 0.2297384),
    "contrastive, L2": (ContrastiveLoss("euclidean", 4.0), 2, 5, SAME, 2.9508929, 1.4025911),
    "online": (OnlineContrastiveLoss("cosine", 1.5), 2, 5, SAME, 2.0912235, 1.9406543),
    "online, L2": (OnlineContrastiveLoss("euclidean", 4.0), 2, 5, SAME, 31.1364344, 15.7826321),
    "online, all same": (OnlineContrastiveLoss("cosine", 1.5), 2, 5, [1] * 6, 5.7017124, 3.6166628),
    "online, none same": (
        *(OnlineContrastiveLoss("cosine", 1.5), 2, 5, [0] * 6, 1.2186349, 1.6689198),
    ),
    "hard": (BatchHardTripletLoss("cosine", 1.0), 1, 5, CLASSES, 1.0640397, 0.7264486),
    "hard, L2": (BatchHardTripletLoss(margin=1.0), 1, 5, CLASSES, 1.5689734, 0.7799989),
    "hard, one class": (BatchHardTripletLoss(margin=1.0), 1, 5, [3] * 6, 1.0, 0.0),
    "soft": (BatchHardTripletLoss("cosine", None), 1, 5, CLASSES, 0.7494908, 0.3693924),
    "soft, L2": (BatchHardTripletLoss(margin=None), 1, 5, CLASSES, 1.1071306, 0.5827955),
    "all": (BatchAllTripletLoss("cosine", 0.1), 1, 5, CLASSES, 0.4011027, 0.7833596),
    "all, L2": (BatchAllTripletLoss(margin=1.0), 1, 5, CLASSES, 1.3610613, 0.7900918),
    "all, halves": (BatchAllTripletLoss(margin=0.1), 1, 5, HALVES, 1.0246806, 0.5307183),
    "all, one class": (BatchAllTripletLoss(margin=1.0), 1, 5, [3] * 6, 0.0, 0.0),
    "semi-hard": (BatchSemiHardTripletLoss("cosine", 1.0), 1, 5, CLASSES, 0.6346813, 0.7547730),
    "semi-hard, L2": (BatchSemiHardTripletLoss(margin=0.1), 1, 5, CLASSES, 0.0903388, 0.2458867),
    "semi-hard, halves": (
        *(BatchSemiHardTripletLoss("cosine", 0.1), 1, 5, HALVES, 0.1915764, 0.3688746),
    ),
    "semi-hard, one class": (
        *(BatchSemiHardTripletLoss(margin=1.0), 1, 5, [3] * 6, 3.6592203, 0.6153210),
    ),
    "semi-hard, all classes": (BatchSemiHardTripletLoss(margin=1.0), 1, 5, range(6), 0.0, 0.0),
    "margin of one": (MarginMSELoss(), 3, 5, TEACHER_OF_TWO[:, 0], 4.2467473, 8.4982633),
    "margin [n, 1]": (MarginMSELoss(), 3, 5, TEACHER_OF_TWO[:, :1], 4.2467473, 8.4982633),
    "scores of two": (MarginMSELoss(), 3, 5, TEACHER_OF_TWO, 3.4447549, 7.6596591),
    "margins of two": (MarginMSELoss(), 4, 5, TEACHER[:, :2], 9.4545168, 9.1720872),
    "scores of three": (MarginMSELoss(), 4, 5, TEACHER, 6.4132575, 6.5484952),
}


def with_gradient(loss, values, labels):
    """The losses of examples, their mean and the gradient of the mean."""
    labels = tf.constant(labels, tf.float32)
    with tf.GradientTape() as tape:
        vectors = tf.Variable(values, dtype=tf.float32)
        losses = loss.losses(labels, loss.training_outputs(vectors))
        mean = tf.reduce_mean(losses)
    gradient = tape.gradient(mean, vectors)
    return losses.numpy(), mean.numpy(), tf.convert_to_tensor(gradient).numpy()


@pytest.mark.parametrize("case", CASES)
def test_sentence_transformers_has_the_same_numbers(case):
    loss, num_texts, size, labels, expected, norm = CASES[case]
    values = np.random.default_rng(num_texts).standard_normal([6, num_texts, size])
    losses, mean, gradient = with_gradient(loss, values, labels)
    assert losses.shape == (6,)
    np.testing.assert_allclose(mean, expected, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(gradient), norm, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_replica_without_rows_and_one_of_one_row(case):
    loss, num_texts, size, labels, *_ = CASES[case]
    values = np.ones([1, num_texts, size])  # all texts are the same: distances of 0
    for rows in (0, 1):
        losses, _, gradient = with_gradient(loss, values[:rows], labels[:rows])
        assert losses.shape == (rows,) and np.isfinite(losses).all()
        assert rows == 0 or np.isfinite(gradient).all()


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_hits_of_the_hardest_texts(distance):
    """A hit is a text whose class is closer than all others, against NumPy."""
    values = np.random.default_rng(2).standard_normal([12, 3])
    classes = np.arange(12) % 3
    values[:, 0] += 3.0 * classes
    others = values[:, np.newaxis]
    distances = np.linalg.norm(values - others, axis=-1)
    if distance == "cosine":
        unit = values / np.linalg.norm(values, axis=1, keepdims=True)
        distances = 1 - unit @ unit.T
    are_same = classes[:, np.newaxis] == classes
    farthest = np.where(are_same, distances, -np.inf).max(axis=1)
    expected = farthest < np.where(are_same, np.inf, distances).min(axis=1)
    loss = BatchHardTripletLoss(distance)
    outputs = loss.outputs(tf.constant(others, tf.float32))
    np.testing.assert_allclose(outputs, distances, atol=1e-5)
    assert 0 < expected.sum() < 12
    np.testing.assert_array_equal(loss.hits(tf.constant(classes), outputs), expected)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: CoSENTLoss(0.0), UserError, "`scale` must be positive"),
        (lambda: AnglELoss(-1.0), UserError, "`scale` must be positive"),
        (lambda: ContrastiveLoss("dot"), UserError, "`distance` must be"),
        (lambda: OnlineContrastiveLoss(margin=0.0), UserError, "`margin` must be positive"),
        (lambda: BatchHardTripletLoss("dot"), UserError, "`distance` must be"),
        (lambda: BatchHardTripletLoss(margin=0.0), UserError, "`margin` must be positive, or None"),
        (lambda: BatchAllTripletLoss(margin=None), UserError, "`margin` must be positive. Rec"),
        (
            lambda: CoSENTLoss().check_labels(np.zeros([3, 2])),
            *(UserError, r"`y` must be one number for each example.*\(3, 2\)"),
        ),
        (
            lambda: ContrastiveLoss().check_labels(np.array([1, 0, 2, 0.5])),
            *(DataError, "1 .belong together. or 0. Received: 2.0 in rows 2, 3"),
        ),
        (
            lambda: MatryoshkaLoss("contrastive", [2]).check_labels(np.array([3])),
            *(DataError, "1 .belong together. or 0"),
        ),
        (
            lambda: MarginMSELoss().losses(tf.zeros([2, 4]), tf.zeros([2, 2])),
            *(UserError, r"be margins \[n, 2\], or scores \[n, 3\]. Received: .*\[2, 4\]"),
        ),
        (lambda: MarginMSELoss().check(2, True), *(UserError, "3 or more texts and a label")),
        (lambda: BatchHardTripletLoss().check(2, True), UserError, "1 texts and a label"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
