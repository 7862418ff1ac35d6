"""The signatures of `BertCrossEncoder`: how well a document fits a query."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.cross_encoder.preprocessor import SIGMOID


class CrossEncoderModule(ServingModule):
    """Maps a query and a document to a score."""

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)  # [B, 1]
        is_sigmoid = self.model.activation == SIGMOID
        scores = tf.sigmoid(logits) if is_sigmoid else logits
        return {"score": scores[:, 0], "logits": logits}
