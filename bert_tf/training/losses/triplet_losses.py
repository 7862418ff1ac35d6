"""The losses that keep a text of another kind farther away than one of the same kind.

Glossary: `B` examples, `K` texts of an example, `D` size of a vector.
"""

import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require, require_one_of
from bert_tf.training.losses.sentence_loss import SentenceLoss
from bert_tf.training.losses.vector_distances import DISTANCES, batch_distances, own_distances

TRIPLET_MARGIN = 1.0  # Reimers and Gurevych 2019, section 3
BATCH_HARD_MARGIN = 5.0  # sentence-transformers, BatchHardTripletLoss


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


class BatchHardTripletLoss(SentenceLoss):
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

    num_texts = (1,)

    def __init__(
        self,
        distance: str = "euclidean",
        margin: float | None = BATCH_HARD_MARGIN,
        texts_per_label: int | None = None,
    ):
        require_one_of("distance", distance, DISTANCES)
        is_valid = margin is None or margin > 0
        require(is_valid, "must be positive, or None for a soft margin", UserError, margin=margin)
        is_count = is_integer(texts_per_label) and texts_per_label >= 2
        rule = "must be an integer of at least 2, or None"
        is_valid = texts_per_label is None or is_count
        require(is_valid, rule, UserError, texts_per_label=texts_per_label)
        self.distance = distance
        self.margin = margin
        self.texts_per_label = texts_per_label

    def outputs(self, vectors):
        return batch_distances(vectors[:, 0], self.distance)  # [B, B]

    def losses(self, labels, outputs):
        farthest, closest = self._hardest(labels, outputs)
        if self.margin is None:
            return tf.math.softplus(farthest - closest)
        return tf.nn.relu(farthest - closest + self.margin)

    def hits(self, labels, outputs):
        farthest, closest = self._hardest(labels, outputs)
        return farthest < closest

    def _hardest(self, labels, distances):
        """Returns the distances `[B]` of p and n.

        As in sentence-transformers, they are 0 and the largest distance if the batch has no such
        text.
        """
        labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
        are_same = tf.equal(labels[:, tf.newaxis], labels)  # [B, B]
        farthest = tf.reduce_max(tf.where(are_same, distances, 0.0), axis=1)
        most = tf.reduce_max(distances, axis=1, keepdims=True)
        return farthest, tf.reduce_min(tf.where(are_same, distances + most, distances), axis=1)
