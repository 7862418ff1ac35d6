"""Sentence vectors: one vector a text, near for texts that mean the same."""

import os

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import POOLING_MODES
from bert_tf.errors import UserError
from bert_tf.layers.pooling import SequencePooling
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSentenceEncoder(TaskModel):
    """BERT with a pooled vector for each text.

    Args:
        backbone: The `BertBackbone`.
        pooling: "mean", "max" or "mean_max" over the real tokens, or "cls": the first token's
            vector as the encoder gives it, without the pooler's dense layer, as in
            sentence-transformers.
        normalize: Whether vectors are scaled to length 1.
        tokenizer: The `BertTokenizer`.
        max_length: Longest sequence in tokens; longer text is cut.

    Returns:
        float32 `[B, D]`; D is the hidden size H, for "mean_max" 2H.

    Example:
        >>> encoder = BertSentenceEncoder.from_pretrained("minilm/")
        >>> vectors = encoder.encode(["A dog barks.", "There is a dog barking.", "Interest rates"])
        >>> vectors.shape
        (3, 384)

    Reference: Reimers and Gurevych 2019 (arXiv 1908.10084), section 3.
    """

    def __init__(
        self,
        backbone: BertBackbone,
        pooling: str = "mean",
        normalize: bool = False,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        if pooling not in POOLING_MODES:
            raise UserError(
                f"`pooling` must be one of {POOLING_MODES}. Received: pooling={pooling!r}"
            )
        self.pooling = pooling
        self.normalize = normalize
        self.sequence_pooling = (
            None if pooling == "cls" else SequencePooling(pooling, dtype=self.dtype_policy)
        )
        backbone.pooler.trainable = False  # no part of the vector
        self.built = True

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, **options) -> "BertSentenceEncoder":
        """Builds the encoder of a checkpoint directory.

        A sentence-transformers directory (`modules.json`) says how its vectors are pooled, whether
        they are normalized and where texts are cut; other directories leave this class's defaults.

        Args:
            path: A directory that `BertBackbone.from_pretrained` opens.
            **options: Arguments of this class and of `BertBackbone`; they win over the files'.

        Raises:
            CheckpointError: If a file is missing or damaged, or the directory asks for a module
                other than a Transformer, its pooling and normalization.
        """
        from bert_tf.checkpoints.opening import resolve
        from bert_tf.checkpoints.sentence_transformers import encoder_options

        path = resolve(path)
        return super().from_pretrained(path, **{**encoder_options(path), **options})

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        states = self.backbone(tokens, training=training)["sequence_output"]
        if self.sequence_pooling is None:
            vectors = states[:, 0]  # [B, T, H] -> [B, H]
        else:
            vectors = self.sequence_pooling(states, self.backbone.padding_mask_of(tokens))
        vectors = tf.cast(vectors, tf.float32)
        return tf.math.l2_normalize(vectors, axis=-1) if self.normalize else vectors

    def encode(
        self, texts: str | list[str], token_budget: int | None = None, show_progress: bool = False
    ) -> np.ndarray:
        """Vectors of many texts: sorted by length, batched by a budget of tokens, order restored.

        Args:
            texts: A list of strings, or one.
            token_budget: Tokens of a batch; None takes `TaskModel.predict`'s.
            show_progress: Whether to show a bar over the batches.

        Returns:
            float32 `[n, D]`; `[D]` for one string.
        """
        if isinstance(texts, str):
            return self.encode([texts], token_budget)[0]
        if not len(texts):
            factor = 2 if self.pooling == "mean_max" else 1
            return np.zeros([0, factor * self.backbone.config.hidden_size], np.float32)
        return self.predict(texts, token_budget=token_budget, verbose=1 if show_progress else 0)

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}
