"""The signatures of `BertTextClassifier`: labels, probabilities, scores."""

import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.models.serving_module import ServingModule


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
        label = tf.gather(labels, tf.argmax(logits, axis=-1))
        return {"label": label, "probabilities": tf.nn.softmax(logits), "logits": logits}
