"""A model that reads a query and a document together and scores the document."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import MULTI_LABEL
from bert_tf.errors import require_one_of
from bert_tf.inputs.labels import are_labels_of_tokens, check_ids
from bert_tf.inputs.token_inputs import one_sequence_per_row
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.tasks.cross_encoder.preprocessor import SCORE_ACTIVATIONS, SIGMOID
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.tasks.shared.ranked_documents import RanksDocuments, document_cross_entropy


@keras.saving.register_keras_serializable(package="bert_tf")
class BertCrossEncoder(RanksDocuments, DenseHeadModel):
    """BERT with one score for each pair of a query and a document.

    It reads both together, so it is more accurate than the cosine of two vectors of a
    `BertSentenceEncoder`, but has to read every pair. `fit` and `evaluate` take pairs with labels
    from 0 to 1 or, without labels, tuples of K + 1 lists: queries, documents that fit, and others
    that do not. The loss is `RelevanceLoss` unless `compile` is given one; with "mse", the model
    learns any numbers, such as a teacher's scores.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`; the longer text of a pair is truncated.
        dropout: Dropout before the last layer; None means the rate of the configuration.
        activation: The function from logits to scores: "sigmoid" or "identity".

    Call arguments:
        inputs: What the backbone takes, `[B, T]`, or `[B, K, T]` for K documents of each query; or
            a tuple of strings `[B]`.

    Returns:
        Logits float32 `[B, 1]` or `[B, K]`.

    Raises:
        UserError: If `activation` is unknown.

    Example:
        >>> model = bert_tf.BertCrossEncoder.from_pretrained("bert-base/")
        >>> model.fit((["who wrote it?", "who wrote it?"], ["Ada wrote it.", "Rain."]), [1.0, 0.0])
        >>> model.score(["who wrote it?"], ["Ada wrote it."]).shape
        (1,)
        >>> best = model.rank("who wrote it?", ["Rain.", "Ada wrote it."], top_k=1)
        >>> len(best), best[0].index in (0, 1)
        (1, True)

    Reference: Nogueira and Cho 2019 (arXiv 1901.04085); sentence-transformers, `CrossEncoder`,
    whose directories it opens and writes.
    """

    activation = Held()

    def __init__(
        self,
        backbone: BertBackbone,
        dropout: float | None = None,
        activation: str = SIGMOID,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.activation = activation
        self.check_options()
        self.add_dropout(dropout)
        own = {"loss": RelevanceLoss, "accuracy": is_right}
        self.classifier = self.dense_head(1, problem_type=MULTI_LABEL, **own)  # one sigmoid
        self.built = True

    def check_options(self):
        super().check_options()
        require_one_of("activation", self.activation, tuple(SCORE_ACTIVATIONS))

    def read_labels(self, y, x):
        y = super().read_labels(y, x)
        if are_labels_of_tokens(y, x) and isinstance(self.loss, RelevanceLoss):
            shape = np.shape(x["token_ids"])
            if len(shape) == 3:
                check_ids(y, shape[1], "Numbers of documents")
        return y

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        ids = tokens["token_ids"]
        pairs = one_sequence_per_row(tokens)  # [B, K, T] -> [B * K, T]
        pooled = self.backbone(pairs, training=training)["pooled_output"]
        logits = self.classifier(self.dropout_layer(pooled, training=training))  # [B * K, 1]
        logits = tf.cast(logits, tf.float32)
        return logits if ids.shape.rank == 2 else tf.reshape(logits, keras.ops.shape(ids)[:2])

    def document_scores(self, query, documents, **batching):
        return self.score([query] * len(documents), documents, **batching)


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
