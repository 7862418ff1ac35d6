"""The losses on pairs of texts that belong together (label 1) or do not (label 0).

Glossary: `B` pairs.
"""

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError, UserError, require, require_one_of, user_error
from bert_tf.inputs.columns import named_rows
from bert_tf.training.losses.sentence_loss import SentenceLoss
from bert_tf.training.losses.vector_distances import DISTANCES, own_distances

CONTRASTIVE_MARGIN = 0.5  # sentence-transformers, ContrastiveLoss


class ContrastiveLoss(SentenceLoss):
    """½ d² for pairs with label 1, ½ max(margin - d, 0)² for pairs with label 0.

    Args:
        distance: d, "cosine" (1 - cos) or "euclidean".
        margin: How far apart texts with label 0 should be.

    Raises:
        UserError: If `distance` is unknown or `margin` is not positive.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.ContrastiveLoss(margin=0.5)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["It rains.", "It rains."], ["It is wet.", "It is dry."]), [1, 0])

    Reference: Hadsell et al. 2006, "Dimensionality reduction by learning an invariant mapping";
    sentence-transformers, `ContrastiveLoss`.
    """

    has_hits = False

    def __init__(self, distance: str = "cosine", margin: float = CONTRASTIVE_MARGIN):
        require_one_of("distance", distance, DISTANCES)
        require(margin > 0, "must be positive", UserError, margin=margin)
        self.distance = distance
        self.margin = margin

    def check_labels(self, labels):
        super().check_labels(labels)
        wrong = np.flatnonzero(~np.isin(labels.reshape(-1), (0, 1)))
        if len(wrong):
            received = f"{labels.reshape(-1)[wrong[0]]} in {named_rows(wrong.tolist())}"
            raise user_error("`y`", "be 1 (belong together) or 0", received, DataError)

    def outputs(self, vectors):
        return own_distances(vectors, self.distance)[:, 0]

    def losses(self, labels, outputs):
        return tf.where(_are_same(labels), *self._terms(outputs)) / 2.0

    def _terms(self, distances):
        """Returns what a pair contributes with label 1, and with label 0."""
        return tf.square(distances), tf.square(tf.nn.relu(self.margin - distances))


class OnlineContrastiveLoss(ContrastiveLoss):
    """`ContrastiveLoss` of the hard pairs of a batch: their sum, without the factor ½.

    A pair with label 1 is hard if it is farther apart than the closest pair with label 0; one with
    label 0 if it is closer than the farthest with label 1. Without pairs of the other label, the
    limit is the mean distance. The batch is what one replica computes at once, with
    `gradient_accumulation_steps` a part of its rows.

    Args:
        distance, margin: See `ContrastiveLoss`.

    Raises:
        UserError: See `ContrastiveLoss`.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.OnlineContrastiveLoss()
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["It rains.", "It rains."], ["It is wet.", "It is dry."]), [1, 0])

    Reference: sentence-transformers, `OnlineContrastiveLoss`.
    """

    def losses(self, labels, outputs):
        are_same = _are_same(labels)
        farthest = _limit(tf.reduce_max, outputs, are_same, outputs.dtype.min)
        closest = _limit(tf.reduce_min, outputs, ~are_same, outputs.dtype.max)
        is_hard = tf.where(are_same, outputs > closest, outputs < farthest)
        losses = tf.where(are_same, *self._terms(outputs))
        # The mean over the examples of a step is their sum in sentence-transformers.
        return tf.where(is_hard, losses, 0.0) * tf.cast(tf.size(outputs), outputs.dtype)


def _are_same(labels):
    return tf.cast(tf.reshape(labels, [-1]), tf.float32) > 0.5


def _limit(reduce, distances, chosen, empty):
    """Returns the extreme distance of the chosen pairs; of none, the mean distance of all."""
    extreme = reduce(tf.where(chosen, distances, empty))
    return tf.where(tf.reduce_any(chosen), extreme, tf.reduce_mean(distances))
