"""What `BertCrossEncoder` reads and answers: queries with documents, and a score for each pair.

Glossary: `n` queries, `K` documents of each.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inputs.columns import TextColumns, is_container
from bert_tf.inputs.labels import read_regression_labels
from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.shared.preprocessors import ListPreprocessor, PairsPreprocessor
from bert_tf.training.evaluation.probabilities import sigmoid

SIGMOID, IDENTITY = "sigmoid", "identity"
SCORE_ACTIVATIONS = {SIGMOID: sigmoid, IDENTITY: np.asarray}


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class CrossEncoderPreprocessor(ListPreprocessor, PairsPreprocessor):
    """Maps pairs, or queries with K documents each, to tokens; logits to scores.

    `activation` is "sigmoid" or "identity".
    """

    activation: str = SIGMOID

    def targets(self, y, x):
        """Returns a number for each pair; for lists 0, the number of the first.

        Raises:
            UserError: If lists have labels.
        """
        if isinstance(x, TextColumns) and len(x) > 2:
            if y is not None:
                raise UserError(
                    "`y` must be None for queries with several documents, of which the first is "
                    f"the one that fits. Received: y={type(y).__name__}. Labels are for pairs."
                )
            return np.zeros(x.num_rows, np.int32)
        return read_regression_labels(y, 1) if is_container(y) else y

    def tokenize(self, *texts):
        queries, *documents = texts
        if len(documents) < 2:
            return super().tokenize(*texts)
        return self.pair_tokens(queries, tf.stack(documents, axis=1))

    def decode(self, values, rows, columns):
        """Returns scores float32 `[n]`, of queries with K documents `[n, K]`."""
        scores = SCORE_ACTIVATIONS[self.activation](self.postprocess(values, rows, columns, None))
        return (scores[:, 0] if len(columns) == 2 else scores).astype(np.float32)


class CrossEncoderModule(ServingModule):
    """Maps a query and a document to a score."""

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)  # [B, 1]
        is_sigmoid = self.model.activation == SIGMOID
        scores = tf.sigmoid(logits) if is_sigmoid else logits
        return {"score": scores[:, 0], "logits": logits}
