"""What the tasks whose head is one dense layer have in common."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import SINGLE_LABEL
from bert_tf.layers.dense import Dense
from bert_tf.layers.scalar_mix import ScalarMix
from bert_tf.models.preprocessor import takes_class_ids
from bert_tf.models.task_model import TaskModel
from bert_tf.tasks import option_values
from bert_tf.training.evaluation.metrics_on_logits import metrics_on_logits
from bert_tf.training.losses.loss_on_logits import loss_on_logits


class DenseHeadModel(TaskModel):
    """A task model whose head is one dense layer, by default trained on class ids.

    The constructor of a subclass makes the layer with `dense_head` and then calls `build`.
    """

    # The shape of the logits of two examples whose labels are class ids; None for other labels.
    example_shape: tuple[int, ...] | None = None
    # The attribute that holds the layer, and the layer's name.
    head_layer = "classifier"
    # A `ScalarMix` of all hidden states, or None: the head takes those of the last block.
    scalar_mix: ScalarMix | None = None

    @property
    def head_width(self) -> int:
        """The size of the vectors that the layer takes."""
        return self.backbone.config.hidden_size

    def head_dropout(self, dropout: float | None) -> float:
        """Returns the dropout rate before a head: `dropout`, or if None the configuration's."""
        config = self.backbone.config
        rates = (dropout, config.classifier_dropout, config.hidden_dropout_prob)
        return next(rate for rate in rates if rate is not None)

    def dense_head(self, units: int, name: str | None = None) -> Dense:
        """Returns the layer, which `build` builds, or another one like it with a name."""
        stddev = self.backbone.config.initializer_range
        return Dense(units, stddev, dtype=self.dtype_policy, name=name or self.head_layer)

    def build(self, input_shape=None):
        layer = getattr(self, self.head_layer)
        if not layer.built:
            layer.build([None, self.head_width])
        if self.scalar_mix is not None and not self.scalar_mix.built:
            states = self.backbone.config.num_hidden_layers + 1
            self.scalar_mix.build([[None, None, self.backbone.config.hidden_size]] * states)
        self.built = True

    def backbone_options(self):
        return {} if self.scalar_mix is None else {"output_hidden_states": True}

    def token_states(self, outputs: dict) -> tf.Tensor:
        """Returns the vectors of tokens that the head takes, `[B, T, H]`."""
        if self.scalar_mix is None:
            return outputs["sequence_output"]
        return self.scalar_mix(outputs["hidden_states"])

    def token_logits(self, states: tf.Tensor) -> tf.Tensor:
        """Applies the layer to every token: `[B, T, H]` to float32 `[B, T, units]`."""
        layer = getattr(self, self.head_layer)
        rows = layer(tf.reshape(states, [-1, states.shape[-1]]))  # [B * T, units]
        return tf.reshape(tf.cast(rows, tf.float32), [*keras.ops.shape(states)[:2], layer.units])

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """Compiles as Keras does; the loss defaults to `default_loss`.

        Raises:
            UserError: See `TrainingModel.compile`; for a loss or a metric of probabilities, or a
                metric that does not fit the task.
        """
        loss, metrics = self.loss_and_metrics(loss, metrics)
        if "weighted_metrics" in kwargs:
            _, kwargs["weighted_metrics"] = self.loss_and_metrics(loss, kwargs["weighted_metrics"])
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def loss_and_metrics(self, loss: Any, metrics: Any) -> tuple[Any, Any]:
        """Returns the loss and the metrics of `compile` as those of logits.

        Raises:
            UserError: If they are of probabilities, or the metrics do not fit the task.
        """
        loss = self.default_loss() if loss == "auto" else loss_on_logits(loss)
        example = None
        if self.distribute_strategy.num_replicas_in_sync == 1:
            example = self.example_outputs(takes_class_ids(loss))
        return loss, metrics_on_logits(metrics, self.metrics_problem_type, example)

    @property
    def metrics_problem_type(self) -> str | None:
        """The problem type that metrics must fit; None for none."""
        return None if self.example_shape is None else SINGLE_LABEL

    def example_outputs(self, has_ids: bool) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns labels and logits of some examples, with which `compile` tries metrics, or None.

        Args:
            has_ids: Whether labels are class ids.
        """
        if self.example_shape is None or not has_ids:
            return None
        ids = np.arange(np.prod(self.example_shape[:-1])).reshape(self.example_shape[:-1])
        ids = ids % self.example_shape[-1]
        return ids, 6.0 * np.eye(self.example_shape[-1])[ids] - 3.0

    def default_loss(self) -> keras.losses.Loss:
        """Returns the loss of `compile(loss="auto")`: cross-entropy on class ids."""
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def get_config(self):
        return {**super().get_config(), **option_values(self)}
