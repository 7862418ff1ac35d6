"""Text classification, of single texts and of pairs."""

import keras
import tensorflow as tf

from bert_tf.config import POOLING_MODES
from bert_tf.errors import UserError
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.pooling import SequencePooling
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTextClassifier(TaskModel):
    """BERT with a linear classifier on a pooled vector.

    Args:
        backbone: The `BertBackbone`; build it with `num_encoder_layers=k` to stop after k blocks.
        num_classes: Number of classes; None counts `labels`, or is 2.
        labels: The classes' names, in the order of their ids.
        pooling: "cls" (the pooler on the first token, as in the paper), "mean", "max" or
            "mean_max" over the real tokens.
        dropout: Dropout before the classifier; None takes the configuration's.
        tokenizer: The `BertTokenizer`.
        max_length: Longest sequence in tokens; longer text is cut.

    Returns:
        Logits float32 `[B, num_classes]`.

    Example:
        >>> classifier = BertTextClassifier.from_pretrained("minilm/", labels=["bad", "good"])
        >>> classifier.compile(optimizer=bert_tf.training.AdamWeightDecay(5e-5))
        >>> classifier.fit(["a waste of time", "wonderful"], [0, 1])

    Reference: Devlin et al. 2019, section 4.1; google-research/bert run_classifier.py,
    `create_model`.
    """

    def __init__(
        self,
        backbone: BertBackbone,
        num_classes: int | None = None,
        labels: list[str] | None = None,
        pooling: str = "cls",
        dropout: float | None = None,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        if pooling not in POOLING_MODES:
            raise UserError(
                f"`pooling` must be one of {POOLING_MODES}. Received: pooling={pooling!r}"
            )
        labels = None if labels is None else [str(label) for label in labels]
        if num_classes is None:
            num_classes = len(labels) if labels is not None else 2
        if num_classes < 2 or (labels is not None and len(labels) != num_classes):
            raise UserError(
                "`num_classes` must be at least 2 and the number of `labels`. "
                f"Received: num_classes={num_classes}, labels={labels}"
            )
        config = backbone.config
        if dropout is None:
            dropout = config.classifier_dropout
        if dropout is None:
            dropout = config.hidden_dropout_prob
        self.num_classes = num_classes
        self.labels = labels
        self.pooling = pooling
        self.dropout = dropout
        self.sequence_pooling = (
            None if pooling == "cls" else SequencePooling(pooling, dtype=self.dtype_policy)
        )
        if pooling != "cls":
            backbone.pooler.trainable = False  # no part of the loss
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.classifier = Dense(
            num_classes, config.initializer_range, dtype=self.dtype_policy, name="classifier"
        )
        self.build()

    def build(self, input_shape=None):
        width = self.backbone.config.hidden_size * (2 if self.pooling == "mean_max" else 1)
        if not self.classifier.built:
            self.classifier.build([None, width])
        self.built = True

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """`keras.Model.compile`; the loss defaults to cross-entropy on integer labels."""
        if loss == "auto":
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        outputs = self.backbone(tokens, training=training)
        if self.sequence_pooling is None:
            pooled = outputs["pooled_output"]  # [B, H]
        else:
            pooled = self.sequence_pooling(
                outputs["sequence_output"], self.backbone.padding_mask_of(tokens)
            )
        logits = self.classifier(self.dropout_layer(pooled, training=training))
        return tf.cast(logits, tf.float32)  # [B, num_classes]

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": None if self.labels is None else list(self.labels),
            "pooling": self.pooling,
            "dropout": self.dropout,
        }
