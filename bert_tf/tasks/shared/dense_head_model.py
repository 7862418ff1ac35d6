"""What the tasks whose head is one dense layer have in common."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.lstm import StackedLSTM, unit_list
from bert_tf.layers.pooling import ScalarMix
from bert_tf.models.task_model import TaskModel
from bert_tf.training.losses.sparse_crossentropy import refuse_class_weights, takes_class_ids
from bert_tf.training.on_logits import loss_on_logits, metrics_on_logits


class DenseHeadModel(TaskModel):
    """A task model whose head is one dense layer, by default trained on class ids.

    The constructor of a subclass makes the layer with `dense_head`.

    Attributes:
        scalar_mix: A `ScalarMix` of all hidden states, or None: the head takes those of the last
            block.
        lstm: A `StackedLSTM` between these states and the head, or None.
    """

    scalar_mix: ScalarMix | None = None
    lstm: StackedLSTM | None = None

    def add_dropout(self, dropout: float | None) -> None:
        """Sets `dropout`, the rate before the head, None for the configuration's, and the layer."""
        config = self.backbone.config
        rates = (dropout, config.classifier_dropout, config.hidden_dropout_prob)
        self.dropout = next(rate for rate in rates if rate is not None)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy, name="dropout")

    def add_scalar_mix(self, is_used: bool) -> None:
        """Sets `use_scalar_mix`, and if it is true the layer."""
        self.use_scalar_mix = is_used
        if is_used:
            config = self.backbone.config
            shapes = [[None, None, config.hidden_size]] * (config.num_hidden_layers + 1)
            self.scalar_mix = self.built_layer(ScalarMix, name="scalar_mix", shape=shapes)

    def add_lstm(self, units: int | Sequence[int] | None, is_bidirectional: bool) -> None:
        """Sets `lstm_units` and `lstm_bidirectional`, and if there are units the layer.

        Raises:
            UserError: See `StackedLSTM`.
        """
        self.lstm_units, self.lstm_bidirectional = units, is_bidirectional
        if units is not None:
            self.lstm_units = unit_list(units)
            shape = [None, None, self.backbone.config.hidden_size]
            options = {"bidirectional": is_bidirectional, "name": "lstm", "shape": shape}
            self.lstm = self.built_layer(StackedLSTM, self.lstm_units, **options)

    @property
    def state_size(self) -> int:
        """The size of the vectors of tokens that the head takes."""
        return self.backbone.config.hidden_size if self.lstm is None else self.lstm.width

    def dense_head(
        self,
        units: int,
        name: str = "classifier",
        width: int | None = None,
        example_shape: tuple[int, ...] | None = None,
        problem_type: str | None = None,
        loss: Callable[[], keras.losses.Loss] | None = None,
        accuracy: Callable | None = None,
    ) -> Dense:
        """Returns the layer, to be stored in the attribute `name`.

        Args:
            units: The number of outputs.
            name: The name of the layer and of the attribute.
            width: The size of the vectors that it takes; None for `state_size`.
            example_shape: The shape of the logits of two examples whose labels are class ids.
            problem_type: What loss and metrics must fit. None is a single label if there is an
                `example_shape`, else anything.
            loss, accuracy: Makes the loss, and a function like a Keras metric, by default; None for
                those of the problem's type.
        """
        if problem_type is None and example_shape is not None:
            problem_type = SINGLE_LABEL
        self._dense = _DenseHead(name, example_shape, problem_type, loss, accuracy)
        stddev = self.backbone.config.initializer_range
        shape = [None, width or self.state_size]
        if "dropout_layer" in vars(self):
            self.dropout_layer.build(shape)  # for `summary`
        return self.built_layer(Dense, units, stddev, name=name, shape=shape)

    def mixed_states(self, outputs: dict, padding_mask: tf.Tensor) -> tf.Tensor:
        """Returns the vectors of tokens, `[B, T, state_size]`.

        They are those of the last block, or a mix of all, or of the LSTM on them. `padding_mask` is
        bool `[B, T]`, True for real tokens.
        """
        states = outputs["sequence_output"]
        if self.scalar_mix is not None:
            states = self.scalar_mix(outputs["hidden_states"])
        return states if self.lstm is None else self.lstm(states, padding_mask)

    def token_states(self, outputs: dict, tokens: dict) -> tf.Tensor:
        """Returns the vectors of tokens that the head takes, `[B, T, state_size]`."""
        states = self.mixed_states(outputs, self.backbone.padding_mask_of(tokens))
        return self.pooled_tokens(states) if self.pools_tokens else states

    @property
    def pools_tokens(self) -> bool:
        """Whether a head on tokens takes what the pooler makes of them; not after an LSTM."""
        return self.backbone.config.pooler_use == "tokens" and self.lstm is None

    def pooled_tokens(self, states: tf.Tensor) -> tf.Tensor:
        """Applies the pooler to the vector of every token: `[B, T, H]` -> `[B, T, H]`."""
        rows = self.backbone.pooler(tf.reshape(states, [-1, states.shape[-1]]))  # [B * T, H]
        return tf.reshape(rows, tf.shape(states))

    def token_logits(self, states: tf.Tensor) -> tf.Tensor:
        """Applies the layer to every token: `[B, T, H]` to float32 `[B, T, units]`."""
        layer = getattr(self, self._dense.name)
        rows = layer(tf.reshape(states, [-1, states.shape[-1]]))  # [B * T, units]
        return tf.reshape(tf.cast(rows, tf.float32), [*keras.ops.shape(states)[:2], layer.units])

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """Compiles as Keras does; the loss defaults to that of the problem's type.

        For class ids, `bert_tf.training.SparseCrossentropy` smooths the labels and focuses on hard
        examples.

        Raises:
            UserError: See `TrainingModel.compile`; for a loss or a metric of probabilities, a
                metric that does not fit the task, or class weights if it has no fixed classes.
        """
        if self.spec.labels.no_class_weights:
            refuse_class_weights(loss, self.spec.labels.no_class_weights)
        loss, metrics = self.loss_and_metrics(loss, metrics)
        if "weighted_metrics" in kwargs:
            _, kwargs["weighted_metrics"] = self.loss_and_metrics(loss, kwargs["weighted_metrics"])
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def loss_and_metrics(self, loss: Any, metrics: Any) -> tuple[Any, Any]:
        """Returns the loss and the metrics of `compile` as those of logits.

        Raises:
            UserError: If they are of probabilities, or the metrics do not fit the task.
        """
        is_default = isinstance(loss, str) and loss == "auto"
        default = self._dense.loss or _LOSSES[self._dense.problem_type]
        loss = default() if is_default else loss_on_logits(loss)
        example = None
        if self.distribute_strategy.num_replicas_in_sync == 1:
            example = self._example_outputs(takes_class_ids(loss))
        return loss, metrics_on_logits(metrics, self._dense.problem_type, example)

    def _example_outputs(self, has_ids):
        """Returns labels and logits of some examples, with which `compile` tries metrics, or None.

        Args:
            has_ids: Whether labels are class ids.
        """
        shape, problem_type = self._dense.example_shape, self._dense.problem_type
        if shape is None:
            return None
        if problem_type == SINGLE_LABEL:
            ids = np.arange(np.prod(shape[:-1])).reshape(shape[:-1]) % shape[-1]
            return (ids, 6.0 * np.eye(shape[-1])[ids] - 3.0) if has_ids else None
        logits = 6.0 * np.eye(*shape) - 3.0
        labels = (logits > 0).astype(np.float32)
        is_number = problem_type == REGRESSION and shape[-1] == 1
        return labels[:, 0] if is_number else labels, logits

    def default_compile(self, y):
        metrics = _METRICS[self._dense.problem_type]()
        if self._dense.accuracy is not None:
            metrics = [keras.metrics.MeanMetricWrapper(self._dense.accuracy, name="accuracy")]
        return super().default_compile(y) | ({} if metrics is None else {"metrics": metrics})


class _DenseHead(NamedTuple):
    """What `dense_head` was given."""

    name: str
    example_shape: tuple[int, ...] | None
    problem_type: str | None
    loss: Callable[[], keras.losses.Loss] | None
    accuracy: Callable | None


def _class_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


_LOSSES = {
    None: _class_loss,
    SINGLE_LABEL: _class_loss,
    MULTI_LABEL: lambda: keras.losses.BinaryCrossentropy(from_logits=True),
    REGRESSION: keras.losses.MeanSquaredError,
}
_METRICS = {
    None: lambda: None,
    SINGLE_LABEL: lambda: ["accuracy"],
    MULTI_LABEL: lambda: [keras.metrics.AUC(multi_label=True, from_logits=True, name="auc")],
    REGRESSION: lambda: ["mae"],
}
