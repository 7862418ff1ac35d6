"""What `BertNextSentencePredictor` reads: pairs of texts, and 0 or 1 for each."""

import keras
import tensorflow as tf

from bert_tf.inputs.columns import is_container
from bert_tf.inputs.labels import class_ids
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.serving_module import ServingModule
from bert_tf.training.evaluation.probabilities import softmax

IS_NEXT = 0  # google-research/bert: 0 is the next sentence, 1 a random one


@keras.saving.register_keras_serializable(package="bert_tf")
class NextSentencePreprocessor(Preprocessor):
    """Maps pairs of texts to tokens, logits to the probability that the second is next."""

    def targets(self, y, x):
        if not is_container(y):
            return y
        return class_ids(y, None, 2, keep_rows=not self.has_sparse_labels)

    def decode(self, values, rows, columns):
        return softmax(values)[:, IS_NEXT].astype("float32")


class NextSentencePredictionModule(ServingModule):
    """Maps a pair of texts to the probability that the second follows the first."""

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)  # [B, 2]
        return {"probability": tf.nn.softmax(logits)[:, IS_NEXT], "logits": logits}
