"""The loss of `BertLateInteractionEncoder`, on scores of documents or from a teacher's scores.

Glossary: `B` queries, `K` documents of each, `M` documents that each is compared with.
"""

import keras
import tensorflow as tf

from bert_tf.errors import require_one_of, user_error
from bert_tf.tasks.shared.ranked_documents import document_cross_entropy, score_of

KL, MARGIN_MSE = "kl", "margin_mse"


@keras.saving.register_keras_serializable(package="bert_tf")
class DocumentRankingLoss(keras.losses.Loss):
    """Cross-entropy of finding the document that fits a query, or distance to a teacher's scores.

    `call` takes scores `[B, M]`: first those of the K documents of a query, then those of other
    queries' documents, if they are compared. Labels int `[B]` are the number of the document that
    fits. Labels float `[B, K]` are scores of a teacher, such as a `BertCrossEncoder`; other
    queries' documents then add the cross-entropy of finding the first document among them. `call`
    returns `[B]`.

    Args:
        distillation: How a teacher's scores are learned: "kl", the Kullback-Leibler divergence of
            the softmaxes over the K documents, or "margin_mse", the mean of (margin - teacher's
            margin)² over the margins between the first document and each other.

    Raises:
        UserError: If `distillation` is unknown.

    Example:
        >>> loss = DocumentRankingLoss()
        >>> scores = tf.constant([[2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> loss.call(tf.constant([0, 1]), scores).numpy().round(2)
        array([0.41, 0.55], dtype=float32)
        >>> loss.call(tf.constant([[3.0, 1.0], [1.0, 2.0]]), scores[:, :2]).numpy().round(2)
        array([0., 0.], dtype=float32)

    Reference: Khattab and Zaharia 2020 (arXiv 2004.12832), section 3.3; Santhanam et al. 2022
    (ColBERTv2, arXiv 2112.01488), section 3.2; Hofstätter et al. 2020 (arXiv 2010.02666).
    """

    def __init__(self, distillation: str = KL, name: str = "document_ranking_loss", **kwargs):
        super().__init__(name=name, **kwargs)
        require_one_of("distillation", distillation, (KL, MARGIN_MSE))
        self.distillation = distillation

    def call(self, y_true, y_pred):
        y_pred, y_true = tf.convert_to_tensor(y_pred), tf.convert_to_tensor(y_true)
        count = _num_scored(y_true)
        if count == 1:
            return document_cross_entropy(y_true, y_pred)
        own, others = y_pred[:, :count], y_pred[:, count:]
        losses = self._distances(tf.cast(y_true, y_pred.dtype), own)
        # Without others, this is the cross-entropy of one document: 0.
        among_others = tf.concat([own[:, :1], others], axis=1)
        return losses + document_cross_entropy(tf.zeros_like(own[:, 0], tf.int32), among_others)

    def _distances(self, teacher, scores):
        if self.distillation == KL:
            targets, found = tf.nn.log_softmax(teacher), tf.nn.log_softmax(scores)
            return tf.reduce_sum(tf.exp(targets) * (targets - found), axis=-1)
        margins = scores[:, :1] - scores[:, 1:]
        return tf.reduce_mean(tf.square(margins - (teacher[:, :1] - teacher[:, 1:])), axis=-1)

    def get_config(self):
        return {**super().get_config(), "distillation": self.distillation}


@keras.saving.register_keras_serializable(package="bert_tf")
def ranks_right_document_first(y_true, y_pred):
    """Returns whether no document has a higher score than the one that fits.

    The arguments are those of `DocumentRankingLoss.call`; of a teacher's scores the best of the K
    documents fits, and only these are compared. The result is float32 `[B]`.
    """
    y_true = tf.convert_to_tensor(y_true)
    count = _num_scored(y_true)
    if count > 1:
        y_pred, y_true = y_pred[:, :count], tf.argmax(y_true, axis=-1)
    right = score_of(y_true, y_pred)
    return tf.cast(right >= tf.reduce_max(y_pred, axis=-1), tf.float32)


def _num_scored(labels):
    """Returns how many documents of a query a teacher scored; 1 for numbers of documents."""
    count = 1 if labels.shape.rank == 1 else labels.shape[1]  # Keras may make [B] into [B, 1]
    if count is None:
        raise user_error("`y`", "be [n], or [n, K] with a known K", f"y.shape={labels.shape}")
    return count
