"""The loss of `BertCrossEncoder`, on pairs or on the documents of a query, and its accuracy.

Glossary: `B` queries, `K` documents of each.
"""

import keras
import tensorflow as tf

from bert_tf.tasks.shared.ranked_documents import document_cross_entropy


@keras.saving.register_keras_serializable(package="bert_tf")
class RelevanceLoss(keras.losses.Loss):
    """Binary cross-entropy of pairs, or cross-entropy over the documents of a query.

    `call` takes labels in [0, 1] with logits `[B, 1]`, or the number of the document that fits,
    int `[B]`, with logits `[B, K]` of K > 1 documents, and returns `[B]`.

    Reference: sentence-transformers, `BinaryCrossEntropyLoss` and `MultipleNegativesRankingLoss`
    of its cross-encoder.
    """

    def call(self, y_true, y_pred):
        y_pred = tf.convert_to_tensor(y_pred)
        if y_pred.shape[-1] == 1:
            labels = tf.cast(tf.reshape(y_true, [-1, 1]), y_pred.dtype)
            return tf.nn.sigmoid_cross_entropy_with_logits(labels, y_pred)[:, 0]
        return document_cross_entropy(y_true, y_pred)


@keras.saving.register_keras_serializable(package="bert_tf")
def is_right(y_true, y_pred):
    """Returns whether a pair is on the right side of 0.5, or the best document is the right one.

    The arguments are those of `RelevanceLoss.call`; the result is float32 `[B]`.
    """
    y_true = tf.reshape(tf.cast(y_true, tf.float32), [-1])
    if y_pred.shape[-1] == 1:
        found, right = y_pred[:, 0] > 0.0, y_true > 0.5
    else:
        found, right = tf.argmax(y_pred, axis=-1), tf.cast(y_true, tf.int64)
    return tf.cast(tf.equal(found, right), tf.float32)
