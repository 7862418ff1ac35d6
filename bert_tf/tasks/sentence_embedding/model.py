"""Sentence embedding: one vector per text; similar vectors for texts with similar meanings."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.base.json_schema import is_integer
from bert_tf.config import POOLING_MODES
from bert_tf.errors import require, require_one_of
from bert_tf.layers.pooling import LayerMean, SequencePooling, first_token
from bert_tf.layers.vector_projection import (
    VectorProjection,
    Whitening,
    principal_directions,
    projected_size,
)
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.tasks.sentence_embedding.preprocessor import unit_vectors
from bert_tf.tasks.shared.vector_model import VectorModel


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSentenceEncoder(VectorModel):
    """BERT with a pooled vector for each text.

    It is trained on tuples of K lists, examples of K texts. Each text is encoded separately, and
    `compile(objective=...)` says how the vectors are compared.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`.
        pooling: "mean", "max" or "mean_max" over the real tokens, or "cls": the first token's
            vector without the pooler's dense layer, as in sentence-transformers.
        layer_start: The vectors of tokens are a mean of the outputs of the blocks from this one on,
            0 for the embeddings, with a learned weight for each. None takes those of the last
            block.
        projection: Dense layers and LayerNorms after pooling: the `steps` of
            `layers.VectorProjection`. None means none.
        normalize: Whether vectors are scaled to length 1.
        whitening_size: Size of whitened vectors, which `fit_whitening` sets. None means no
            whitening.
        truncate_dim: The number of first dimensions that are kept before vectors are normalized,
            for models trained with `MatryoshkaLoss`. None keeps all.
        prompts: Texts that `encode` puts before other texts, by names such as "query".
        default_prompt_name: The prompt if `encode` gets none; None means no prompt.

    Call arguments:
        inputs: What the backbone takes, `[B, T]`, or `[B, K, T]` for K texts per example; or
            strings `[B]`, or a tuple of K times strings `[B]`.

    Returns:
        float32 `[B, D]` or `[B, K, D]`. D is H, or 2H for "mean_max", the size of the last dense
        layer with a `projection`, or `whitening_size`, and at most `truncate_dim`.

    Raises:
        UserError: If `pooling`, a step of `projection` or `default_prompt_name` is unknown, or
            `truncate_dim` or `layer_start` out of range.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> vectors = encoder.encode(["A dog barks.", "There is a dog barking.", "Interest rates"])
        >>> vectors.shape
        (3, 384)
        >>> (vectors @ vectors.T).round(1) + 0.0
        array([[1. , 0.9, 0. ],
               [0.9, 1. , 0. ],
               [0. , 0. , 1. ]], dtype=float32)

    Reference: Reimers and Gurevych 2019 (arXiv 1908.10084), section 3.
    """

    normalize = Held()

    def __init__(
        self,
        backbone: BertBackbone,
        pooling: str = "mean",
        normalize: bool = False,
        tokenizer=None,
        max_length: int | None = None,
        whitening_size: int | None = None,
        truncate_dim: int | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        projection: Sequence[Mapping[str, Any]] | None = None,
        layer_start: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, prompts, default_prompt_name, **kwargs)
        require_one_of("pooling", pooling, POOLING_MODES)
        self.pooling = pooling
        self.normalize = normalize
        self.sequence_pooling = None
        if pooling != "cls":
            shape = [None, None, backbone.config.hidden_size]
            self.sequence_pooling = self.built_layer(
                SequencePooling, pooling, name="sequence_pooling", shape=shape
            )
        self.layer_start = layer_start
        self.scalar_mix = None  # with one, the backbone returns the outputs of all blocks
        if layer_start is not None:
            last = backbone.config.num_hidden_layers
            is_valid = is_integer(layer_start) and 0 <= layer_start <= last
            require(is_valid, f"must be in [0, {last}], or None", layer_start=layer_start)
            shapes = [[None, None, backbone.config.hidden_size]] * (last + 1)
            self.scalar_mix = self.built_layer(
                LayerMean, layer_start, name="layer_mean", shape=shapes
            )
        self.projection_layer = None
        if projection:
            initializer_range = backbone.config.initializer_range
            self.projection_layer = VectorProjection(
                projection, initializer_range, name="projection"
            )
            self.projection_layer.build([None, self.pooled_size])
        self._set_whitening(whitening_size)
        self.truncate_dim = truncate_dim
        self.check_options()
        self.built = True

    def check_options(self):
        super().check_options()
        if self.truncate_dim is not None:
            _require_dimensions(self.truncate_dim, self._full_size())

    def _set_whitening(self, size):
        with keras_compat.unlocked(self):
            self.replace_option("whitening_size", size)
            self.whitening = None
            if size is not None:
                self.whitening = Whitening(size, name="whitening")
                self.whitening.build([None, self._projected_size()])

    @property
    def pooled_size(self) -> int:
        """The size of the vectors after pooling."""
        return self.backbone.config.hidden_size * (2 if self.pooling == "mean_max" else 1)

    def _projected_size(self) -> int:
        return projected_size(self.pooled_size, self.projection or ())

    @property
    def projection(self) -> list[dict[str, Any]] | None:
        """The dense layers and LayerNorms after pooling."""
        return None if self.projection_layer is None else self.projection_layer.steps

    @property
    def vector_size(self) -> int:
        """D."""
        return self.truncate_dim or self._full_size()

    def _full_size(self):
        return self.whitening_size or self._projected_size()

    def head(self, outputs, tokens, training=False):
        pooling = self.sequence_pooling or first_token
        mask = self.backbone.padding_mask_of(tokens)
        states = outputs["sequence_output"]  # [B, T, H]
        if self.scalar_mix is not None:
            states = self.scalar_mix(outputs["hidden_states"])
        vectors = tf.cast(pooling(states, mask), tf.float32)  # [B, H]
        if self.projection_layer is not None:
            vectors = self.projection_layer(vectors)
        if self.whitening is not None:
            vectors = self.whitening(vectors)
        vectors = vectors[:, : self.truncate_dim]
        if self.normalize:
            vectors = tf.math.l2_normalize(vectors, axis=-1)
        return vectors

    def fit_whitening(
        self, texts: list[str], size: int | None = None, token_budget: int | None = None
    ) -> None:
        """Fits the whitening to the vectors of `texts` and replaces the one before.

        Do it after training, which changes the vectors. A compiled objective has their old size.

        Args:
            texts: Some thousand sentences of the kind that will be encoded; more than D. They
                are encoded with the default prompt.
            size: The size of whitened vectors. None means the number of directions in which the
                vectors vary (H - 1 after BERT's last LayerNorm).
            token_budget: See `encode`.

        Raises:
            UserError: If the texts are too few for the size, it is below `truncate_dim`, or there
                is no tokenizer.

        Example:
            >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
            >>> encoder.fit_whitening(texts, size=2)  # better of some thousand sentences
            >>> encoder.encode(texts).shape
            (4, 2)
            >>> encoder.save_pretrained("whitened/")

        Reference: Su et al. 2021 (arXiv 2103.15316).
        """
        shared = {"tokenizer": self.tokenizer, "max_length": self.max_length}
        shared |= {"projection": self.projection, "dtype": self.dtype_policy}
        shared |= {"prompts": self.prompts, "default_prompt_name": self.default_prompt_name}
        shared |= {"layer_start": self.layer_start}
        plain = BertSentenceEncoder(self.backbone, self.pooling, **shared)
        if self.scalar_mix is not None:
            plain.scalar_mix.set_weights(self.scalar_mix.get_weights())
        if self.projection_layer is not None:
            plain.projection_layer.set_weights(self.projection_layer.get_weights())
        vectors = plain.encode(texts, token_budget=token_budget)
        layer = Whitening(len(principal_directions(vectors)[1]) if size is None else size)
        kept, rule = self.truncate_dim, "must be at least `truncate_dim`"
        require(kept is None or kept <= layer.units, rule, size=layer.units, truncate_dim=kept)
        layer.build([None, self._projected_size()])
        layer.fit(vectors)
        self._set_whitening(layer.units)
        self.whitening.set_weights(layer.get_weights())

    def encode(
        self,
        texts: str | list[str],
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
        window_stride: int | None = None,
        window_pooling: str = "mean",
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> np.ndarray:
        """Returns the vectors of texts.

        Args:
            texts: Single texts as in `fit`, or one string.
            batch_size, token_budget, verbose, window_stride, window_pooling: See `predict`.
            prompt_name: The name of a prompt in `prompts`, which is put before each text; None
                means the default prompt.
            prompt: The prompt itself instead of a name, such as an instruction; "" for none.
            truncate_dim: The number of dimensions that are kept; None means the model's. If the
                model normalizes vectors, it does so afterwards.

        Returns:
            float32 `[n, D]`; `[D]` for one string.

        Raises:
            UserError: If there is no tokenizer, an example has several texts, the prompt is
                unknown, or `truncate_dim` is out of range.
            DataError: If a text is missing or malformed.
        """
        if truncate_dim is not None:
            _require_dimensions(truncate_dim, self.vector_size)
        columns = self.preprocessor.read_examples(texts)
        is_single = columns.is_single
        verbose = 0 if is_single else verbose
        windows = {"window_stride": window_stride, "window_pooling": window_pooling}
        columns = self.prompted(columns, prompt_name, prompt)
        vectors = self.predict(columns, batch_size, verbose, token_budget=token_budget, **windows)
        if truncate_dim is not None:
            vectors = vectors[:, :truncate_dim]
            vectors = unit_vectors(vectors) if self.normalize else vectors
        return vectors[0] if is_single else vectors


def _require_dimensions(count, size):
    is_valid = is_integer(count) and 1 <= count <= size
    require(is_valid, f"must be in [1, {size}], the size of the vectors", truncate_dim=count)
