"""Traced steps of `fit`, `evaluate` and `predict` that do not outlive what is in the traces.

Batches that are in memory are computed by a `Predictor`, without Keras's loop: Keras's `predict`
makes a dataset and its iterator in every call, and traces again when a batch has another shape. For
one short text that takes ten times as long as the network.
"""

import operator
import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.base.flat_functions import FlatFunction
from bert_tf.errors import check_limits
from bert_tf.inputs.batches import TOKEN_BUDGET, sorted_batches
from bert_tf.inputs.token_rows import FewTexts, TokenRows, feature_specs
from bert_tf.text.tokenizer_base import Tokenizer

_STEP = "predict"
_CREATION = threading.Lock()


class Traces:
    """What the traced steps of a model were traced with, by step.

    Keras does not look into such an object for variables. Weights are held by weak references.
    """

    def __init__(self):
        self._weights = {}
        self._settings = {}

    def have_changed(self, model: keras.Model, step: str, settings: Any) -> bool:
        """Returns whether weights or settings are others than at the last call for this step.

        The step is "train", which also depends on which weights are trained, "test", "predict" or
        another name. `settings` are what else a trace depends on, to be compared with `==`.
        """
        if self.are_of(model, step, settings):
            return False
        weights = keras_compat.quick_weights(model, with_trained=step == "train")
        self._weights[step] = list(map(weakref.ref, weights))
        self._settings[step] = settings
        return True

    def are_of(self, model: keras.Model, step: str, settings: Any) -> bool:
        """Returns whether weights and settings are those of the last call of `have_changed`."""
        known = self._weights.get(step)
        weights = keras_compat.quick_weights(model, with_trained=step == "train")
        if known is None or len(known) != len(weights) or self._settings[step] != settings:
            return False
        return all(map(operator.is_, map(weakref.ref.__call__, known), weights))


def traced_settings(model: keras.Model, step: str) -> Any:
    """Returns what a trace depends on in addition to weights, to be compared with `==`."""
    held = vars(model).get("_preprocessor")
    packing = getattr(getattr(model, "backbone", None), "padding_free", None)
    reading = packing, None if held is None else (id(held), held.changes)
    wrapped = model._known.wrapped and traced_settings(model._known.wrapped[0], step)
    loss = settings_of(model.loss) if step in ("train", "test") else None
    objective = model._objective and settings_of(model._objective)
    settings = model._option_changes, loss, objective, reading, wrapped
    if step != "train":
        return settings
    schedule = keras_compat.learning_rate_schedule(model.optimizer)
    is_schedule = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
    schedule = schedule if is_schedule else None  # a rate is in a variable
    return *settings, settings_of(model.optimizer), schedule, settings_of(schedule)


def settings_of(part: Any) -> dict[str, Any]:
    """Returns the settings of an optimizer or a loss that a graph holds, such as `beta_1`.

    Example:
        >>> settings_of(bert_tf.training.SparseCrossentropy(0.1))["label_smoothing"]
        [0.1]
    """
    settings = {}
    for name, value in getattr(part, "__dict__", {}).items():
        if name in ("loss", "inner_optimizer"):  # that of another loss or optimizer
            settings[name] = settings_of(value)
        elif name != "built" and not name.startswith("_"):
            values = list(value) if isinstance(value, (list, tuple)) else [value]
            is_setting = all(isinstance(v, (int, float, str, type(None))) for v in values)
            if values and is_setting:
                settings[name] = values
    return settings


class Predictor:
    """The `predict_step` of a model, traced once for each set of features, whatever their sizes.

    It may be called by several threads. It is valid as long as the model has the variables and the
    settings that it had before; values of variables are always read anew.

    Args:
        model: A `StepModel`.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> rows = classifier.preprocessor.encode(classifier.preprocessor.read(texts))
        >>> Predictor.of(classifier).tensors(rows.batch(np.arange(4))).shape
        TensorShape([4, 2])
    """

    def __init__(self, model: keras.Model):
        self._model = model
        self._functions = {}
        self._state = Traces()
        self._state.have_changed(model, _STEP, traced_settings(model, _STEP))

    @classmethod
    def of(cls, model: keras.Model) -> "Predictor":
        """Returns the predictor of a model, a new one if what was traced is not valid."""
        predictor, settings = model.predictor, traced_settings(model, _STEP)
        if predictor is None or not predictor._state.are_of(model, _STEP, settings):
            with _CREATION:
                predictor = model.predictor
                if predictor is None or not predictor._state.are_of(model, _STEP, settings):
                    predictor = model.predictor = cls(model)
        return predictor

    def tensors(
        self,
        features: dict[str, np.ndarray | tf.Tensor],
        inputs: Collection[str] = (),
        step: Callable[[dict[str, tf.Tensor]], Any] | None = None,
        key: Hashable = None,
    ) -> Any:
        """Returns what `predict_step` returns for the features of a batch, with B rows each.

        `inputs` are those of `feature_specs`. `step` is another function of the features, which is
        computed on one device; `key` is what it depends on, apart from the model.
        """
        model = self._model
        jit_compile, strategy = bool(model.jit_compile), model.distribute_strategy
        is_alone = step is not None or strategy.num_replicas_in_sync == 1
        specs = feature_specs(features, inputs, is_static=jit_compile)
        key = (key, jit_compile, *specs.items())
        if model.run_eagerly:
            function = step or (self._step if is_alone else self._gathered_step)
        elif (function := self._functions.get(key)) is None:
            options = {"jit_compile": jit_compile or None}
            if is_alone:
                function = FlatFunction(step or self._step, [specs], **options)
            else:
                options["reduce_retracing"] = True
                function = tf.function(self._gathered_step, autograph=False, **options)
            function = self._functions.setdefault(key, function)
        if is_alone and not model.run_eagerly:
            return function(features)
        tensors = tf.nest.map_structure(tf.convert_to_tensor, features)
        return function(tensors if is_alone else _dealt(tensors, strategy))

    def of_texts(self, texts: FewTexts) -> tuple[tf.Tensor, Any]:
        """Returns the order of the rows, and what `tensors` returns for them in this order."""

        def outputs(*columns):
            features, order = texts.in_order(columns)
            return order, self.tensors(features)

        with tf.device("CPU:0"):
            columns = [tf.constant(column, tf.string) for column in texts.texts]
        return self.of_strings(columns, texts.tokenizer, outputs, texts.max_length)

    def of_strings(
        self, columns: list[tf.Tensor], tokenizer: Tokenizer, outputs: Callable, key: Hashable
    ) -> Any:
        """Returns what a function of strings returns, in one graph.

        What the function computes with `tensors` is traced once, for this graph and for batches.

        Args:
            columns: The strings, each `[B]`.
            tokenizer: What the function converts them with.
            outputs: The function of `columns`.
            key: What the function depends on, apart from the model, the tokenizer and the number of
                columns.
        """
        if self._model.run_eagerly:
            return outputs(*columns)
        kind = tokenizer.kind_of(columns)
        key = key, len(columns), kind
        function = self._functions.get(key)
        if function is None:

            def in_graph(*columns):
                with tokenizer.assuming(kind):
                    return outputs(*columns)

            specs = [tf.TensorSpec([None], tf.string)] * len(columns)
            function = self._functions.setdefault(key, FlatFunction(in_graph, specs))
        return function(*columns)

    def _gathered_step(self, features):
        # Outside of a graph, `gather` would be traced in every call.
        return self._model.distribute_strategy.gather(self._step(features), axis=0)

    def _step(self, features):
        return self._model.distribute_strategy.run(self._model.predict_step, args=(features,))


def _dealt(tensors, strategy):
    """Returns the features of a batch with the rows of each replica."""
    count, parts = len(next(iter(tensors.values()))), strategy.num_replicas_in_sync

    def own_rows(context):
        number = context.replica_id_in_sync_group
        rows = slice(count * number // parts, count * (number + 1) // parts)
        return {name: values[rows] for name, values in tensors.items()}

    return strategy.experimental_distribute_values_from_function(own_rows)


def may_be_predicted(model: keras.Model, inputs: Any) -> bool:
    """Returns whether a `Predictor` may compute a call with these inputs: texts outside of graphs.

    Op by op, a short text would take several times as long.
    """
    return (
        tf.executing_eagerly()
        and not any(isinstance(part, keras.KerasTensor) for part in tf.nest.flatten(inputs))
        and not keras_compat.may_be_differentiated()
        and vars(model).get("_preprocessor") is not None
        and not model.run_eagerly
        and not model.jit_compile
        and model.distribute_strategy.num_replicas_in_sync == 1
    )


def is_one_request(model: keras.Model, *batching: int | None) -> bool:
    """Returns whether a text may be computed in one graph: no batching is asked for."""
    return not any(batching) and may_be_predicted(model, ())


def predict_rows(model: keras.Model, rows: TokenRows, *batching, **options) -> Any:
    """Returns a model's outputs for rows of tokens, in their order; see `predict_batches`.

    Outputs of tokens are padded to the longest row.
    """
    order, found = [], []
    for numbers, outputs in predict_batches(model, rows, *batching, **options):
        order.append(numbers)
        found.append(outputs)
    order = np.argsort(np.concatenate(order))
    axis, padding = model.spec.token_axis, model.spec.token_padding
    is_one_batch = len(order) and len(found) == 1
    if axis is not None and not (is_one_batch and model.preprocessor.static_length is None):
        longest = rows.lengths().max() if len(rows) else model.max_sequence_length
        found = [_of_length(longest, outputs, axis, padding) for outputs in found]
    return tf.nest.map_structure(lambda *parts: np.concatenate(parts)[order], *found)


def _of_length(length, outputs, axis, padding):
    """Returns the outputs of a batch, padded or cut to a number of tokens, which are at `axis`."""
    if outputs.shape[axis] == length:
        return outputs
    outputs = outputs[(*[slice(None)] * axis, slice(length))]
    widths = [(0, 0)] * outputs.ndim
    widths[axis] = 0, length - outputs.shape[axis]
    return np.pad(outputs, widths, constant_values=padding)


def predict_batches(
    model: keras.Model,
    rows: TokenRows,
    batch_size: int | None = None,
    verbose: int | str = 0,
    callbacks: Any = None,
    token_budget: int | None = None,
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields the row numbers `[B]` and the outputs of every batch of texts.

    Without rows it is a batch of none, which shows the shape of the outputs. The arguments are
    those of `TrainingModel.predict`.
    """
    length = None
    if model.jit_compile:  # XLA compiles batches of one size
        length = model.preprocessor.static_length
        batch_size = batch_size or max(1, TOKEN_BUDGET // length)
    in_one_graph = length is None and _are_one_batch(model, rows, batch_size, token_budget)
    if in_one_graph:
        batches = [np.arange(len(rows))]
    else:
        check_limits(token_budget=token_budget, batch_size=batch_size)
        batches = sorted_batches(rows, token_budget, batch_size, length) or [np.arange(0)]
    callbacks = _begun_callbacks(model, callbacks, verbose, len(batches))
    predictor = Predictor.of(model)
    for step, numbers in enumerate(batches):
        callbacks.on_predict_batch_begin(step)
        if in_one_graph:
            numbers, outputs = predictor.of_texts(rows)
            numbers = numbers.numpy()
        else:
            outputs = predictor.tensors(rows.batch(numbers, length), rows.inputs)
        outputs = tf.nest.map_structure(np.array, outputs)
        callbacks.on_predict_batch_end(step, {"outputs": outputs})
        yield numbers, outputs
        if callbacks.model is not None and model.stop_predicting:
            break
    callbacks.on_predict_end()


def _are_one_batch(model, rows, batch_size, token_budget):
    """Returns whether `sorted_batches` makes one batch of few texts, whatever their lengths."""
    if not isinstance(rows, FewTexts) or model.distribute_strategy.num_replicas_in_sync > 1:
        return False
    if batch_size is not None and batch_size < len(rows):
        return False
    token_budget = TOKEN_BUDGET if token_budget is None else token_budget
    return rows.most_tokens <= token_budget or (len(rows) == 1 and token_budget >= 1)


def _begun_callbacks(model, callbacks, verbose, steps):
    """Returns the callbacks of Keras's `predict`, with its progress bar, after their begin."""
    if callbacks is None and not verbose:
        return keras.callbacks.Callback()
    model.stop_predicting = False
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        shown = {"add_progbar": bool(verbose), "verbose": verbose, "epochs": 1, "steps": steps}
        callbacks = keras.callbacks.CallbackList(callbacks, model=model, **shown)
    callbacks.on_predict_begin()
    return callbacks
