"""What the tasks that give each text a vector have in common: objectives, several texts, prompts.

Glossary: `B` examples, `K` texts of an example, `T` tokens, `D` size of a vector.
"""

from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.token_inputs import one_sequence_per_row
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.models.task_model import TaskModel
from bert_tf.training.batch_parts import cached_gradients
from bert_tf.training.losses.sentence_loss import SentenceLoss, sentence_loss
from bert_tf.training.losses.sparse_crossentropy import class_weights_by_id, refuse_class_weight


class VectorModel(TaskModel):
    """A task model whose outputs are vectors of texts, which an objective compares.

    A subclass has `vector_size` and `encode`, and overrides `head`.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`.
        prompts: Texts that `encode` puts before other texts, by names such as "query".
        default_prompt_name: The prompt if `encode` gets none; None means no prompt.

    Attributes:
        objectives_with_labels: What an error says about objectives for examples with labels.

    Raises:
        UserError: If `default_prompt_name` is unknown.
    """

    objectives_with_labels: ClassVar[str] = "'classification' for class ids, 'cosine' for scores"
    prompts = Held()
    default_prompt_name = Held()

    def __init__(
        self,
        backbone: BertBackbone,
        tokenizer=None,
        max_length: int | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.prompts = prompts
        self.default_prompt_name = default_prompt_name
        VectorModel.check_options(self)
        self.accuracy = keras.metrics.Mean(name="accuracy")

    def check_options(self):
        super().check_options()
        self.preprocessor.follow(prompts=dict(self.prompts or {}))
        if self.default_prompt_name is not None:
            require_one_of("default_prompt_name", self.default_prompt_name, tuple(self.prompts))

    @property
    def objective(self) -> SentenceLoss | None:
        """The argument of `compile`."""
        return self._objective

    @property
    def vector_size(self) -> int:
        """D."""
        raise NotImplementedError(f"{type(self).__name__} must have a property `vector_size`.")

    def compile(self, optimizer="adam", objective: str | SentenceLoss | None = None, **kwargs):
        """Compiles as Keras does, with a loss on the vectors of each example's texts.

        Saved models hold only the encoder, not the variables of the objective.

        Args:
            objective: The name of a loss, one of `SENTENCE_LOSSES` of
                `bert_tf.training.losses.sentence_loss` such as "ranking", or one of
                `bert_tf.training.losses` with its arguments. None means that Keras's `loss` is
                computed on the vectors.
            optimizer, **kwargs: See `TrainingModel.compile`.

        Raises:
            UserError: If `objective` is unknown, or is given with a loss or metrics, or needs whole
                batches by label where they are divided.
        """
        if objective is not None:
            objective = sentence_loss(objective)
            given = sorted({"loss", "metrics"} & set(kwargs))
            if given:
                expected = "not be given with an `objective`, which has its own loss and metric"
                raise user_error("`loss` and `metrics`", expected, given)
            with self.distribute_strategy.scope():
                objective.build(self.vector_size, self.backbone.config.initializer_range)
        self._objective = objective
        in_parts = objective is not None and objective.mini_batch_size is not None
        self._gradients_of = self._cached_gradients if in_parts else None
        super().compile(optimizer, **kwargs)
        parts = self.gradient_accumulation_steps * self.distribute_strategy.num_replicas_in_sync
        per_label = None if objective is None else objective.texts_per_label
        rule = "must be None if steps divide a batch into parts or between replicas"
        require(per_label is None or parts == 1, rule, UserError, texts_per_label=per_label)
        if objective is not None:
            self._compile_options = None  # an objective cannot be compiled again from a file
            objective.set_step(self.optimizer.iterations)

    def default_compile(self, y):
        """Raises `UserError` for labels, which may be classes or scores."""
        if y is not None:
            raise UserError(
                "The encoder must be compiled for texts with labels. Received: `y` and no "
                "`objective`. Call `compile(optimizer, objective=...)`: "
                f"{self.objectives_with_labels}."
            )
        return {**super().default_compile(y), "objective": self.default_objective()}

    def read_labels(self, y, x):
        y = super().read_labels(y, x)
        objective = self.objective
        if objective is not None and objective.needs_labels and isinstance(y, np.ndarray):
            objective.check_labels(y)
        return y

    def default_objective(self) -> str | SentenceLoss:
        """Returns the objective of a model that is trained without `compile`."""
        return "ranking"

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        ids = tokens["token_ids"]
        vectors = super().call(one_sequence_per_row(tokens), training)  # [B, K, T] -> [B * K, D]
        if ids.shape.rank == 2:
            return vectors
        return tf.reshape(vectors, [*keras.ops.shape(ids)[:2], self.vector_size])

    def forward(self, x, y, training):
        vectors = self(x, training=training)  # [B, D] or [B, K, D]
        return vectors if self.objective is None else self._compared(vectors, y, training)

    def _compared(self, vectors, y, training):
        """Returns what the objective compares."""
        objective = self.objective
        vectors = vectors[:, tf.newaxis] if vectors.shape.rank == 2 else vectors  # [B, K, D]
        objective.check(vectors.shape[1], y is not None)
        return (objective.training_outputs if training else objective.outputs)(vectors)

    def _cached_gradients(self, x, y, sample_weight, totals, variables):
        def losses(vectors):
            y_pred = self._compared(vectors, y, training=True)
            loss = self.partial_loss(x, y, y_pred, sample_weight, True, totals)
            return loss, self.optimizer.scale_loss(loss)

        size = self.objective.mini_batch_size
        return cached_gradients(self, x, size, losses, variables)

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
        num_classes = None if self.objective is None else self.objective.num_classes
        if num_classes is None:
            refuse_class_weight(class_weight, "only the objective 'classification' has classes")
        return class_weights_by_id(class_weight, num_classes)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        # The objective's only metric is counted with its loss.
        if self.objective is None:
            super().compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def get_metrics_result(self):
        logs = super().get_metrics_result()
        if self.objective is None or not self.objective.has_hits:
            logs.pop("accuracy", None)
        return logs

    def prompted(self, columns: TextColumns, name: str | None, prompt: str | None) -> TextColumns:
        """Returns texts with a prompt before each.

        `name` is one of `prompts`, None for the default; `prompt` the text itself instead, "" for
        none.

        Raises:
            UserError: If the name is unknown, or both are given.
        """
        if name is not None and prompt is not None:
            received = f"prompt_name={name!r}, prompt={prompt!r}"
            raise user_error("At most one of `prompt_name` and `prompt`", "be given", received)
        if name is not None:
            require_one_of("prompt_name", name, tuple(self.prompts))
        elif prompt is None:
            name = self.default_prompt_name
        return self.preprocessor.with_prompt(
            columns, prompt if name is None else self.prompts[name]
        )
