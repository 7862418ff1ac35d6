"""The signatures of `BertTextClassifier`: labels, probabilities, scores."""

import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.models.serving_module import ServingModule
from bert_tf.training.evaluation.probabilities import POSITIVE_CLASS


class TextClassificationModule(ServingModule):
    """Maps text, or a pair of texts, to a label, to the probabilities of several, or to numbers.

    `pairs` says whether the classifier was trained on pairs of texts.
    """

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)  # [B, C]
        if self.model.problem_type == REGRESSION:
            return {"score": tf.identity(logits), "logits": logits}
        labels = tf.constant(self.model.preprocessor.names)
        if self.model.problem_type == MULTI_LABEL:
            names = tf.broadcast_to(labels, tf.shape(logits))  # [C] -> [B, C]
            return {"labels": names, "probabilities": tf.sigmoid(logits), "logits": logits}
        probabilities, threshold = tf.nn.softmax(logits), self.model.threshold
        if threshold is None:
            ids = tf.argmax(logits, axis=-1)
        else:
            ids = tf.cast(probabilities[:, POSITIVE_CLASS] >= threshold, tf.int64)
        return {"label": tf.gather(labels, ids), "probabilities": probabilities, "logits": logits}
