"""The signatures of `BertNextSentencePredictor`: whether one text follows another."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.next_sentence_prediction.preprocessor import IS_NEXT


class NextSentencePredictionModule(ServingModule):
    """Maps a pair of texts to the probability that the second follows the first."""

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)  # [B, 2]
        return {"probability": tf.nn.softmax(logits)[:, IS_NEXT], "logits": logits}
