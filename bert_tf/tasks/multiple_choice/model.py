"""Multiple choice: which of several texts goes with a prompt."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import is_container, is_text, plain_rows, refuse_missing, shown
from bert_tf.errors import UserError
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import Dropout
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.label_inputs import class_ids
from bert_tf.models.task_model import TaskModel
from bert_tf.models.text_inputs import TextColumns, text_column
from bert_tf.models.tokenized_texts import TokenizedTexts
from bert_tf.training.losses.class_weights import refuse_class_weight
from bert_tf.training.losses.sparse_crossentropy import refuse_class_weights

_CALL = (
    "A tuple (prompts, choices) was expected: strings, and a list of strings for each; or a list "
    "of such pairs, [(prompt, [choice, choice]), ...]."
)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(TaskModel):
    """BERT with one score for each pair of a prompt and a choice.

    `fit`, `evaluate` and `predict` take raw text as a tuple `(prompts, choices)`: n strings and n
    lists of C strings. Below, `C` is the number of choices.

    Args:
        backbone: The `BertBackbone`.
        dropout: Dropout before the classifier; None takes the configuration's.
        tokenizer: The `BertTokenizer`.
        max_length: Longest pair in tokens; the longer text of a pair is cut.

    Call arguments:
        inputs: What the backbone takes, each `[B, C, T]`; or a tuple of strings `[B]` and
            `[B, C]`.

    Returns:
        Logits float32 `[B, C]`; for tokens `[B, T]`, a pair a row, `[B]`.

    Example:
        >>> model = bert_tf.BertMultipleChoice.from_pretrained("bert-base/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> prompts, choices = ["She fills the kettle."], [["She boils it.", "It flies off."]]
        >>> model.fit((prompts, choices), [0])
        >>> model.predict((prompts, choices)).shape
        (1, 2)

    Reference: Devlin et al. 2019, section 4.4; Zellers et al. 2018 (SWAG, arXiv 1808.05326).
    """

    def __init__(
        self,
        backbone: BertBackbone,
        dropout: float | None = None,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        config = backbone.config
        if dropout is None:
            dropout = config.classifier_dropout
        if dropout is None:
            dropout = config.hidden_dropout_prob
        self.dropout = dropout
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.classifier = Dense(
            1, config.initializer_range, dtype=self.dtype_policy, name="classifier"
        )
        self.build()

    def build(self, input_shape=None):
        if not self.classifier.built:
            self.classifier.build([None, self.backbone.config.hidden_size])
        self.built = True

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """`keras.Model.compile`; the loss defaults to cross-entropy over the choices.

        `bert_tf.training.SparseCrossentropy` smooths the labels and focuses on hard examples.

        Raises:
            UserError: For class weights: a choice's place says nothing.
        """
        refuse_class_weights(loss, "the choices of a prompt, in any order")
        if loss == "auto":
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def class_weights(self, class_weight):
        refuse_class_weight(class_weight, "the place of a choice says nothing")

    def tokenize(self, texts: Any, pairs: Any = None) -> dict[str, tf.Tensor]:
        """Prompts `[B]` and choices `[B, C]` to the dictionary that the model takes, `[B, C, T]`.

        Args:
            texts: Strings `[B]`.
            pairs: Strings `[B, C]`.
        """
        choices = tf.convert_to_tensor("" if pairs is None else pairs)
        if choices.shape.rank != 2:
            raise UserError(
                "Prompts [B] and choices [B, C] were expected. "
                f"Received: choices of shape {choices.shape}"
            )
        count = tf.shape(choices)[1]
        tokens = super().tokenize(tf.repeat(texts, count), tf.reshape(choices, [-1]))
        shape = tf.concat([tf.shape(choices), [-1]], axis=0)
        return {  # [B * C, T] -> [B, C, T]
            name: tf.ensure_shape(tf.reshape(values, shape), [*choices.shape, None])
            for name, values in tokens.items()
        }

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        shape = tf.shape(tokens["token_ids"])
        pairs = {  # [B * C, T]
            name: values if name == "head_mask" else _one_pair_a_row(values)
            for name, values in tokens.items()
        }
        pooled = self.backbone(pairs, training=training)["pooled_output"]  # [B * C, H]
        scores = self.classifier(self.dropout_layer(pooled, training=training))  # [B * C, 1]
        scores = tf.reshape(tf.cast(scores, tf.float32), shape[:-1])  # -> [B, C]
        return tf.ensure_shape(scores, tokens["token_ids"].shape[:-1])

    def read_columns(self, x):
        """Prompts `[n]` and choices `[n, C]` as arrays of strings."""
        if isinstance(x, TextColumns):
            return x
        if not isinstance(x, tuple):
            rows = plain_rows(x)
            if not all(isinstance(row, tuple) and len(row) == 2 for row in rows):
                raise UserError(f"{_CALL} Received: {type(x).__name__}")
            x = tuple(map(list, zip(*rows))) or ([], [])  # pairs of a prompt and its choices
        if len(x) != 2 or is_text(x[1]):
            raise UserError(f"{_CALL} Received: {shown(x)}")
        prompts, choices = x
        if is_text(prompts):
            prompts, choices = [prompts], [choices]
        prompts = text_column(prompts, self._text_errors(), "prompts")
        lists = plain_rows(choices, "choices")
        refuse_missing(lists, "choices")
        rows = []
        for row, members in enumerate(lists):
            if is_text(members):
                raise UserError(f"A list of choices was expected in row {row}. Received: a string")
            rows.append(text_column(members, self._text_errors(), f"choices of row {row}"))
            if len(rows[row]) != len(rows[0]) or len(rows[0]) < 2:
                raise UserError(
                    "At least two choices, and the same number in every row, were expected. "
                    f"Received in row {row}: {len(rows[row])}, in row 0: {len(rows[0])}"
                )
        if len(rows) != len(prompts):
            raise UserError(
                "A list of choices was expected for every prompt. "
                f"Received: {len(prompts)} prompts, {len(rows)} lists"
            )
        count = len(rows[0]) if rows else 0
        choices = np.array(rows, dtype=object).reshape(len(rows), count)  # [n, C], also for n = 0
        columns = TextColumns((prompts, choices))
        columns.is_single = is_text(x[0])
        return columns

    def plain_targets(self, y, x):
        """As `TaskModel.plain_targets`: the number of the right choice for every prompt."""
        if y is None or not is_container(y):
            return y
        count = x[1].shape[1] if isinstance(x, TextColumns) else None
        return class_ids(y, None, count, keep_rows=not self.has_sparse_loss())

    def tensor_columns(self, inputs):
        if tf.is_tensor(inputs):
            raise UserError(f"{_CALL} Received: one tensor of shape {inputs.shape}")
        return super().tensor_columns(inputs)

    def tokenized_texts(self, columns):
        return TokenizedTexts.of(
            self.tokenizer, _pairs(columns), self._longest(), columns[1].shape[1]
        )

    def _predict_sorted(self, columns, token_budget, **kwargs):
        """Every pair for itself: pairs of like length share a batch, whatever their prompt."""
        scores = super()._predict_sorted(TextColumns(_pairs(columns)), token_budget, **kwargs)
        return scores.reshape(columns[1].shape)

    def _predict_nothing(self, columns):
        return np.zeros(columns[1].shape, np.float32)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}


def _pairs(columns):
    """Prompts `[n]` and choices `[n, C]` -> two columns `[n * C]`."""
    prompts, choices = columns
    return np.repeat(prompts, choices.shape[1]), choices.reshape(-1)


def _one_pair_a_row(values):
    """`[B, C, T]` -> `[B * C, T]`; `[B, T]` and the indices of examples `[B]` stay."""
    if values.shape.rank < 3:
        return values
    length = values.shape[-1] if values.shape[-1] is not None else tf.shape(values)[-1]
    return tf.reshape(values, [-1, length])
