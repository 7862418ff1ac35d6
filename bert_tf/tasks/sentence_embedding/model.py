"""Sentence embedding: one vector per text; similar vectors for texts with similar meanings."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import hooks, keras_compat
from bert_tf.config import POOLING_MODES
from bert_tf.deprecation import warn_renamed
from bert_tf.errors import UserError, require_one_of
from bert_tf.json_schema import is_integer
from bert_tf.layers.pooling import SequencePooling
from bert_tf.layers.vector_projection import VectorProjection, projected_size
from bert_tf.layers.whitening import Whitening, principal_directions
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
from bert_tf.models.token_inputs import one_sequence_per_row
from bert_tf.tasks import option_values
from bert_tf.tasks.sentence_embedding.cached_gradients import cached_gradients
from bert_tf.tasks.sentence_embedding.preprocessor import (
    SentenceEmbeddingPreprocessor,
    unit_vectors,
)
from bert_tf.training.losses.class_weights import class_weights_by_id, refuse_class_weight
from bert_tf.training.losses.sentence_losses import ClassificationLoss, SentenceLoss, sentence_loss


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSentenceEncoder(TaskModel):
    """BERT with a pooled vector for each text.

    It is trained on tuples of lists, examples of K texts; each text is encoded by itself, and
    `compile(objective=...)` says how they are compared.

    Args:
        backbone, tokenizer, max_length: As in `TaskModel`.
        pooling: "mean", "max" or "mean_max" over the real tokens, or "cls": the first token's
            vector without the pooler's dense layer, as in sentence-transformers.
        projection: Dense layers and LayerNorms after pooling: the `steps` of
            `layers.VectorProjection`. None for none.
        normalize: Whether vectors are scaled to length 1.
        whitening_size: Size of whitened vectors, which `fit_whitening` sets; None: no whitening.
        truncate_dim: The number of dimensions that are kept, the first ones, before vectors are
            normalized; for models of `MatryoshkaLoss`. None for all.
        prompts: Texts that `encode` puts before others, by names such as "query".
        default_prompt_name: The prompt where `encode` is given none; None for no prompt.

    Call arguments:
        inputs: What the backbone takes, `[B, T]`, or `[B, K, T]` for K texts per example; or
            strings `[B]`, or a tuple of K times strings `[B]`.

    Returns:
        float32 `[B, D]` or `[B, K, D]`; D is H, for "mean_max" 2H, whitened `whitening_size`, at
        most `truncate_dim`, and with a `projection` the size of its last dense layer.

    Raises:
        UserError: If `pooling`, a step of `projection` or `default_prompt_name` is unknown, or
            `truncate_dim` out of range.

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
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        require_one_of("pooling", pooling, POOLING_MODES)
        if default_prompt_name is not None:
            require_one_of("default_prompt_name", default_prompt_name, tuple(prompts or ()))
        self.prompts = dict(prompts or {})
        self.default_prompt_name = default_prompt_name
        self.pooling = pooling
        self.normalize = normalize
        self.sequence_pooling = None
        if pooling != "cls":
            self.sequence_pooling = SequencePooling(pooling, dtype=self.dtype_policy)
        backbone.pooler.trainable = False  # no part of the vector
        self.projection_layer = None
        if projection:
            initializer_range = backbone.config.initializer_range
            self.projection_layer = VectorProjection(
                projection, initializer_range, name="projection"
            )
            self.projection_layer.build([None, self.pooled_size])
        self.objective = None
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self._set_whitening(whitening_size)
        self.truncate_dim = None
        if truncate_dim is not None:
            self._require_dimensions(truncate_dim)
            self.truncate_dim = truncate_dim
        self.built = True

    def _set_whitening(self, size):
        with keras_compat.unlocked(self):
            self.whitening_size = size
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
        return self.truncate_dim or self.whitening_size or self._projected_size()

    def _require_dimensions(self, count):
        if not is_integer(count) or not 1 <= count <= self.vector_size:
            raise UserError(
                f"`truncate_dim` must be in [1, {self.vector_size}], the size of the vectors. "
                f"Received: truncate_dim={count!r}"
            )

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, **options) -> "BertSentenceEncoder":
        """Builds the encoder of a checkpoint directory.

        A sentence-transformers directory (`modules.json`) says how its vectors are pooled, whether
        they are normalized and where texts are cut; other directories leave this class's defaults.

        Args:
            path, **options: As in `BertBackbone.from_pretrained`, and arguments of this class;
                they win over the files'.

        Raises:
            CheckpointError: If a file is missing or damaged, or the directory asks for a module
                other than a Transformer, its pooling, dense layers, LayerNorms and normalization.
        """
        return hooks.load_sentence_encoder(cls, path, **options)

    def compile(self, optimizer="adam", objective: str | SentenceLoss | None = None, **kwargs):
        """`keras.Model.compile` with a loss on the vectors of each example's texts.

        Saved models hold the encoder, without what the objective trains in addition to it.

        Args:
            objective: "classification", "cosine", "ranking" or "triplet", or one of
                `bert_tf.training.losses.sentence_losses` with its arguments. None: Keras's `loss`
                on the vectors.
            optimizer, **kwargs: As in `TrainingModel.compile`.

        Raises:
            UserError: If `objective` is unknown, or is given with a loss or metrics.
        """
        if objective is not None:
            objective = sentence_loss(objective)
            given = sorted({"loss", "metrics"} & set(kwargs))
            if given:
                raise UserError(
                    "`loss` and `metrics` must not be given with an `objective`, which has its own "
                    f"loss and metric. Received: {given}"
                )
            with self.distribute_strategy.scope():
                objective.build(self.vector_size, self.backbone.config.initializer_range)
        self.objective = objective
        super().compile(optimizer, **kwargs)

    def default_compile(self, y):
        """Raises `UserError` for labels, which may be classes or scores."""
        if y is not None:
            raise UserError(
                "The encoder must be compiled for texts with labels. Received: `y` and no "
                "`objective`. Call `compile(optimizer, objective=...)`: 'classification' for class "
                "ids, 'cosine' for scores."
            )
        return {**super().default_compile(y), "objective": "ranking"}

    def get_compile_config(self):
        return super().get_compile_config() if self.objective is None else None

    def make_preprocessor(self, **options):
        no_duplicates = self.objective is not None and self.objective.no_duplicates
        return SentenceEmbeddingPreprocessor(
            normalize=self.normalize, no_duplicates=no_duplicates, **options
        )

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        ids = tokens["token_ids"]
        tokens = one_sequence_per_row(tokens)  # [B, K, T] -> [B * K, T]
        vectors = self.head(self.backbone(tokens, training=training), tokens)
        if ids.shape.rank == 2:
            return vectors
        return tf.reshape(vectors, [*keras.ops.shape(ids)[:2], self.vector_size])

    def head(self, outputs, tokens, training=False):
        states = outputs["sequence_output"]
        if self.sequence_pooling is None:
            vectors = states[:, 0]  # [B, T, H] -> [B, H]
        else:
            vectors = self.sequence_pooling(states, self.backbone.padding_mask_of(tokens))
        vectors = tf.cast(vectors, tf.float32)
        if self.projection_layer is not None:
            vectors = self.projection_layer(vectors)
        if self.whitening is not None:
            vectors = self.whitening(vectors)
        vectors = vectors[:, : self.truncate_dim]
        if self.normalize:
            vectors = tf.math.l2_normalize(vectors, axis=-1)
        return vectors

    def forward(self, x, y, training):
        vectors = self(x, training=training)  # [B, D] or [B, K, D]
        return vectors if self.objective is None else self._compared(vectors, y)

    def _compared(self, vectors, y):
        """Returns what the objective compares."""
        self.objective.check(vectors.shape[1] if vectors.shape.rank == 3 else 1, y is not None)
        return self.objective.outputs(vectors)

    def _gradients(self, x, y, sample_weight, totals, variables):
        objective = self.objective
        if objective is None or objective.mini_batch_size is None:
            return super()._gradients(x, y, sample_weight, totals, variables)

        def losses(vectors):
            y_pred = self._compared(vectors, y)
            loss = self.partial_loss(x, y, y_pred, sample_weight, True, totals)
            return loss, self.optimizer.scale_loss(loss)

        return cached_gradients(self, x, objective.mini_batch_size, losses, variables)

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        if self.objective is None:
            return super().partial_loss(x, y, y_pred, sample_weight, training, totals)
        losses = self.objective.losses(y, y_pred)  # [B]
        if sample_weight is not None:
            losses *= tf.cast(tf.reshape(sample_weight, [-1]), losses.dtype)
        hits = self.objective.hits(y, y_pred)
        if hits is not None:
            self.accuracy.update_state(tf.cast(hits, tf.float32))
        return tf.reduce_sum(losses) / totals["rows"]

    def class_weights(self, class_weight):
        if not isinstance(self.objective, ClassificationLoss):
            refuse_class_weight(class_weight, "only the objective 'classification' has classes")
        return class_weights_by_id(class_weight, self.objective.num_classes)

    def trained_variables(self):
        own = [] if self.objective is None else self.objective.variables
        return [*self.trainable_variables, *own]

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        # The objective's only metric is counted with its loss.
        if self.objective is None:
            super().compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _logs(self):
        logs = super()._logs()
        if self.objective is None or not self.objective.has_hits:
            logs.pop("accuracy", None)
        return logs

    def fit_whitening(
        self, texts: list[str], size: int | None = None, token_budget: int | None = None
    ) -> None:
        """Fits the whitening of the vectors to those of `texts`, instead of the one there was.

        Do it last: training moves the vectors, and a compiled objective has their old size.

        Args:
            texts: Some thousand sentences of the kind that will be encoded; more than D.
            size: Of the whitened vectors; None: the number of directions in which they vary.
                (BERT's last LayerNorm leaves H - 1.)
            token_budget: As in `encode`.

        Raises:
            UserError: If the texts are too few for the size, or there is no tokenizer.

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
        plain = BertSentenceEncoder(self.backbone, self.pooling, **shared)
        if self.projection_layer is not None:
            plain.projection_layer.set_weights(self.projection_layer.get_weights())
        vectors = plain.encode(texts, token_budget=token_budget)
        layer = Whitening(len(principal_directions(vectors)[1]) if size is None else size)
        layer.build([None, self._projected_size()])
        layer.fit(vectors)
        self._set_whitening(layer.units)
        self.whitening.set_weights(layer.get_weights())

    def predict_decoded(self, texts, batch_size=None, token_budget=None, verbose=0):
        batching = {"batch_size": batch_size, "token_budget": token_budget, "verbose": verbose}
        return self.encode(texts, **batching)

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
        show_progress: bool | None = None,
    ) -> np.ndarray:
        """Returns the vectors of texts.

        Args:
            texts: Single texts as in `fit`, or one string.
            batch_size, token_budget, verbose, window_stride, window_pooling: As in `predict`.
            prompt_name: The name in `prompts` of what is put before each text; None for the
                default.
            prompt: The prompt itself, in place of a name, such as an instruction; "" for none.
            truncate_dim: The number of dimensions that are kept; None for the model's. Vectors are
                normalized after that if the model normalizes them.
            show_progress: The old name of `verbose`.

        Returns:
            float32 `[n, D]`; `[D]` for one string.

        Raises:
            UserError: If there is no tokenizer, an example has several texts, the prompt is
                unknown, or `truncate_dim` is out of range.
            DataError: If a text is missing or malformed.
        """
        if show_progress is not None:
            warn_renamed("encode(show_progress=…)", "encode(verbose=…)")
            verbose = int(show_progress)
        if truncate_dim is not None:
            self._require_dimensions(truncate_dim)
        preprocessor = self.preprocessor
        columns = preprocessor.read_examples(texts)
        is_single, prompt = columns.is_single, self._prompt(prompt_name, prompt)
        verbose = 0 if is_single else verbose
        windows = {"window_stride": window_stride, "window_pooling": window_pooling}
        columns = preprocessor.with_prompt(columns, prompt)
        vectors = self.predict(columns, batch_size, verbose, token_budget=token_budget, **windows)
        if truncate_dim is not None:
            vectors = vectors[:, :truncate_dim]
            vectors = unit_vectors(vectors) if self.normalize else vectors
        return vectors[0] if is_single else vectors

    def _prompt(self, name, prompt):
        """Returns what is put before each text."""
        if name is not None and prompt is not None:
            raise UserError(
                "At most one of `prompt_name` and `prompt` must be given. Received: "
                f"prompt_name={name!r}, prompt={prompt!r}"
            )
        if name is not None:
            require_one_of("prompt_name", name, tuple(self.prompts))
        elif prompt is None:
            name = self.default_prompt_name
        return prompt if name is None else self.prompts[name]

    def get_config(self):
        return {**super().get_config(), **option_values(self)}
