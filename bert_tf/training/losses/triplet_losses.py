"""The losses that keep a text of another kind farther away than one of the same kind.

Glossary: `B` examples, `K` texts of an example, `D` size of a vector.
"""

import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require, require_one_of
from bert_tf.training.losses.sentence_loss import SentenceLoss
from bert_tf.training.losses.vector_distances import DISTANCES, batch_distances, own_distances

TRIPLET_MARGIN = 1.0  # Reimers and Gurevych 2019, section 3
BATCH_MARGIN = 5.0  # sentence-transformers, BatchHardTripletLoss


class TripletLoss(SentenceLoss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0), for triplets without labels.

    Args:
        distance: d, "euclidean" or "cosine" (1 - cos).
        margin: How much farther than the positive the negative must be.

    Raises:
        UserError: If `distance` is unknown or `margin` is not positive.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.TripletLoss("cosine", margin=0.5)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Reimers and Gurevych 2019, section 3; Schroff et al. 2015 (arXiv 1503.03832).
    """

    num_texts = (3,)
    needs_labels = False

    def __init__(self, distance: str = "euclidean", margin: float = TRIPLET_MARGIN):
        require_one_of("distance", distance, DISTANCES)
        require(margin > 0, "must be positive", UserError, margin=margin)
        self.distance = distance
        self.margin = margin

    def outputs(self, vectors):
        return own_distances(vectors, self.distance)  # [B, 2]: to the positive, to the negative

    def losses(self, labels, outputs):
        return tf.nn.relu(outputs[:, 0] - outputs[:, 1] + self.margin)

    def hits(self, labels, outputs):
        return outputs[:, 0] < outputs[:, 1]


class _BatchTripletLoss(SentenceLoss):
    """The base of the losses on all texts of a batch, each of a class."""

    num_texts = (1,)
    _takes_no_margin, _margin_rule = False, "must be positive"

    def __init__(
        self,
        distance: str = "euclidean",
        margin: float | None = BATCH_MARGIN,
        texts_per_label: int | None = None,
    ):
        require_one_of("distance", distance, DISTANCES)
        rule, is_valid = self._margin_rule, self._takes_no_margin if margin is None else margin > 0
        require(is_valid, rule, UserError, margin=margin)
        is_count = is_integer(texts_per_label) and texts_per_label >= 2
        rule = "must be an integer of at least 2, or None"
        is_valid = texts_per_label is None or is_count
        require(is_valid, rule, UserError, texts_per_label=texts_per_label)
        self.distance = distance
        self.margin = margin
        self.texts_per_label = texts_per_label

    def outputs(self, vectors):
        return batch_distances(vectors[:, 0], self.distance)  # [B, B]

    def hits(self, labels, outputs):
        farthest, closest = _hardest(labels, outputs)
        return farthest < closest


class BatchHardTripletLoss(_BatchTripletLoss):
    """max(d(a, p) - d(a, n) + margin, 0), for single texts a, each of a class.

    p is the text of the same class that is farthest from a in the batch, n the closest one of
    another class. A batch therefore needs at least two texts of a class, and several classes. The
    labels are numbers; texts with equal labels are of one class. A batch is what one replica
    computes at once, with `gradient_accumulation_steps` a part of its rows.

    Args:
        distance: d, "euclidean" or "cosine" (1 - cos).
        margin: How much farther than p the text n must be; None for log(1 + exp(d(a, p) - d(a,
            n))), a soft margin.
        texts_per_label: `fit` on texts in memory makes batches of several labels, each of which a
            batch has at least this often, from 2 on. What is left over is not in that epoch, which
            is logged. None means batches in any order.

    Raises:
        UserError: If `distance` is unknown, `margin` is not positive or `texts_per_label` less than
            2.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.BatchHardTripletLoss("cosine", margin=0.2, texts_per_label=2)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit(["It rains.", "It pours.", "A dog barks.", "A dog howls."], [0, 0, 1, 1])

    Reference: Hermans et al. 2017 (arXiv 1703.07737); sentence-transformers,
    `BatchHardTripletLoss`, `BatchHardSoftMarginTripletLoss` and `GroupByLabelBatchSampler`.
    """

    _takes_no_margin, _margin_rule = True, "must be positive, or None for a soft margin"

    def losses(self, labels, outputs):
        farthest, closest = _hardest(labels, outputs)
        if self.margin is None:
            return tf.math.softplus(farthest - closest)
        return tf.nn.relu(farthest - closest + self.margin)


class BatchAllTripletLoss(_BatchTripletLoss):
    """The mean of d(a, p) - d(a, n) + margin over the triplets of a batch where it is above 0.

    p is each other text of the class of a, n each text of another class. The arguments, the labels
    and what a batch is are those of `BatchHardTripletLoss`; `margin` may not be None.

    Raises:
        UserError: See there.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.BatchAllTripletLoss("cosine", margin=0.2, texts_per_label=2)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Hermans et al. 2017 (arXiv 1703.07737), "batch all (non-zero)";
    sentence-transformers, `BatchAllTripletLoss`.
    """

    def losses(self, labels, outputs):
        are_same, pairs, distances = _pairs(labels, outputs)
        excess = distances[:, tf.newaxis] - tf.gather(outputs, pairs[:, 0]) + self.margin  # [M, B]
        excess = tf.where(tf.gather(are_same, pairs[:, 0]), 0.0, tf.nn.relu(excess))
        count = tf.math.count_nonzero(excess, dtype=excess.dtype)
        return _of_examples(tf.reduce_sum(excess, axis=1), pairs, count, outputs)


class BatchSemiHardTripletLoss(_BatchTripletLoss):
    """The mean of max(d(a, p) - d(a, n) + margin, 0) over all pairs of a class in a batch.

    n is the closest text of another class that is farther from a than p is, or if there is none,
    the farthest one of another class. If all texts are of one class, d(a, n) is 0. The arguments,
    the labels and what a batch is are those of `BatchHardTripletLoss`; `margin` may not be None.

    Raises:
        UserError: See there.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.BatchSemiHardTripletLoss(margin=1.0, texts_per_label=2)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Schroff et al. 2015 (arXiv 1503.03832), section 3.2; sentence-transformers,
    `BatchSemiHardTripletLoss`.
    """

    def losses(self, labels, outputs):
        are_same, pairs, distances = _pairs(labels, outputs)
        rows = tf.gather(outputs, pairs[:, 0])  # [M, B]
        are_other = ~tf.gather(are_same, pairs[:, 0])
        are_outside = are_other & (rows > distances[:, tf.newaxis])
        most = tf.reduce_max(outputs)
        closest = tf.reduce_min(tf.where(are_outside, rows, most), axis=1)
        farthest = tf.reduce_max(tf.where(are_other, rows, 0.0), axis=1)
        negatives = tf.where(tf.reduce_any(are_outside, axis=1), closest, farthest)
        losses = tf.nn.relu(distances - negatives + self.margin)
        return _of_examples(losses, pairs, tf.cast(tf.size(losses), losses.dtype), outputs)


def _are_same(labels):
    """Returns which examples have the same label, `[B, B]`."""
    labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
    return tf.equal(labels[:, tf.newaxis], labels)


def _pairs(labels, distances):
    """Returns `_are_same`, the pairs of different rows with the same label, and their distances.

    `[B, B]`, `[M, 2]`, `[M]`.
    """
    are_same = _are_same(labels)
    different = tf.linalg.set_diag(are_same, tf.zeros(tf.shape(distances)[:1], tf.bool))
    pairs = tf.where(different)
    return are_same, pairs, tf.gather_nd(distances, pairs)


def _of_examples(losses, pairs, count, distances):
    """Returns `[B]` numbers whose mean is the sum of the losses `[M]` of pairs over `count`."""
    size = tf.shape(distances)[0]
    sums = tf.math.unsorted_segment_sum(losses, pairs[:, 0], size)
    return tf.math.divide_no_nan(sums * tf.cast(size, sums.dtype), count)


def _hardest(labels, distances):
    """Returns for each text the distances `[B]` of the farthest of its class and closest other.

    As in sentence-transformers, they are 0 and the largest distance if the batch has no such text.
    """
    are_same = _are_same(labels)
    farthest = tf.reduce_max(tf.where(are_same, distances, 0.0), axis=1)
    most = tf.reduce_max(distances, axis=1, keepdims=True)
    return farthest, tf.reduce_min(tf.where(are_same, distances + most, distances), axis=1)
