"""BERT as a feature extractor: the hidden states of any layers, one vector per token."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require_one_of
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
from bert_tf.training.traced_steps import predict_batches

COMBINATIONS = ("stack", "concat", "sum", "mean")


@keras.saving.register_keras_serializable(package="bert_tf")
class BertFeatureExtractor(TaskModel):
    """The hidden states of chosen layers, side by side or combined.

    For a mix that is learned with a task, see `bert_tf.layers.ScalarMix`.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`.
        layer_indices: Which of the L + 1 hidden states: 0 is the embeddings, k the output of block
            k, -1 that of the last block. None means the last four, as in google-research/bert and
            the paper's best feature-based tagger, or all if there are fewer.
        combine: "stack", "concat", "sum" or "mean" over the layers.

    Returns:
        float32, for K layers: "stack" `[B, T, K, H]`, "concat" `[B, T, K * H]`, "sum" and "mean"
        `[B, T, H]`; zeros at padded positions.

    Raises:
        UserError: If a layer is out of range, or `combine` is unknown.

    Example:
        >>> extractor = bert_tf.BertFeatureExtractor.from_pretrained("minilm/", combine="concat")
        >>> [features.shape for features in extractor.extract(["A dog barks.", "Rain"])]
        [(7, 1536), (3, 1536)]

    Reference: Devlin et al. 2019, section 5.3; google-research/bert extract_features.py.
    """

    def __init__(
        self,
        backbone: BertBackbone,
        layer_indices: Sequence[int] | None = None,
        combine: str = "stack",
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        if layer_indices is None:
            layer_indices = range(-1, -min(4, backbone.config.num_hidden_layers + 1) - 1, -1)
        self.layer_indices = layer_indices
        self.combine = combine
        self.check_options()
        self.built = True

    def check_options(self):
        super().check_options()
        self.replace_option("layer_indices", list(map(int, self.layer_indices)))
        count, layer_indices = self.backbone.config.num_hidden_layers + 1, self.layer_indices
        if not len(layer_indices) or not all(-count <= layer < count for layer in layer_indices):
            raise UserError(
                f"`layer_indices` must be in [{-count}, {count - 1}], at least one: 0 is the "
                f"embeddings, {count - 1} or -1 the last block. Received: {list(layer_indices)}"
            )
        require_one_of("combine", self.combine, COMBINATIONS)

    def head(self, outputs, tokens, training=False):
        hidden = outputs["hidden_states"]  # L + 1 times [B, T, H]
        chosen = [tf.cast(hidden[layer], tf.float32) for layer in self.layer_indices]
        if self.combine == "stack":
            return tf.stack(chosen, axis=2)  # [B, T, K, H]
        if self.combine == "concat":
            return tf.concat(chosen, axis=-1)  # [B, T, K * H]
        total = tf.add_n(chosen)  # [B, T, H]
        return total / len(chosen) if self.combine == "mean" else total

    def extract(
        self,
        texts: Any,
        token_budget: int | None = None,
        verbose: int = 0,
        batch_size: int | None = None,
    ) -> list:
        """Returns the features of texts without padding; `predict` pads them to `max_length`.

        Args:
            texts: Raw text as in `fit`, single or in pairs; one string or one pair of strings.
            token_budget, batch_size: See `predict`.
            verbose: 1 shows a progress bar.

        Returns:
            For each text float32 `[tokens, ...]`, including `[CLS]` and `[SEP]`; for one string or
            pair, one array.

        Raises:
            UserError: If there is no tokenizer, or an example has more than two texts.
            DataError: If a text is missing or malformed.
        """
        columns = self.preprocessor.read_examples(texts)
        features: list[np.ndarray | None] = [None] * columns.num_rows
        rows, batching = self.preprocessor.encode(columns), {"token_budget": token_budget}
        lengths = rows.lengths()
        for numbers, states in predict_batches(self, rows, batch_size, verbose, **batching):
            for number, row in zip(numbers, states):
                features[number] = row[: lengths[number]].copy()  # keeps no batch alive
        return features[0] if columns.is_single else features
