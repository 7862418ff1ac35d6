"""Computes batches that are in memory: what `predict` does with them, without Keras's loop.

Keras's `predict` makes a dataset and its iterator in every call, and traces again when a batch has
another shape. For one short text that takes ten times as long as the network.
"""

import threading
from collections.abc import Callable, Collection, Hashable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.inputs.batches import feature_specs
from bert_tf.training.traced_weights import Traces

_STEP = "predict"
_CREATION = threading.Lock()


class Predictor:
    """The `predict_step` of a model, traced once for each set of features, whatever their sizes.

    It may be called by several threads. It is valid as long as the model has the variables and the
    settings that it had before; values of variables are always read anew.

    Args:
        model: A `StepModel`.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> rows = classifier.preprocessor.encode(classifier.preprocessor.read(texts))
        >>> Predictor.of(classifier)(rows.batch(np.arange(4))).shape
        (4, 2)
    """

    def __init__(self, model: keras.Model):
        self._model = model
        self._functions = {}
        self._state = Traces()
        self._state.have_changed(model, _STEP, model.traced_settings(_STEP))

    @classmethod
    def of(cls, model: keras.Model) -> "Predictor":
        """Returns the predictor of a model, a new one if what was traced is not valid."""
        predictor, settings = model.predictor, model.traced_settings(_STEP)
        if predictor is None or not predictor._state.are_of(model, _STEP, settings):
            with _CREATION:
                predictor = model.predictor
                if predictor is None or not predictor._state.are_of(model, _STEP, settings):
                    predictor = model.predictor = cls(model)
        return predictor

    def __call__(
        self,
        features: dict[str, np.ndarray],
        inputs: Collection[str] = (),
        step: Callable[[dict[str, tf.Tensor]], Any] | None = None,
        key: Hashable = None,
    ) -> Any:
        """Returns what `predict_step` returns for the features of a batch, as NumPy arrays.

        Args:
            features: Arrays of B rows, by name.
            inputs: See `feature_specs`.
            step: Another function of the features, which is computed on one device.
            key: What the step depends on, apart from the model.
        """
        model = self._model
        jit_compile, strategy = bool(model.jit_compile), model.distribute_strategy
        is_alone = step is not None or strategy.num_replicas_in_sync == 1
        specs = feature_specs(features, inputs, is_static=jit_compile)
        key = (key, jit_compile, *specs.items())
        if model.run_eagerly:
            function = step or self._step
        elif (function := self._functions.get(key)) is None:
            with _CREATION:
                if key not in self._functions:
                    signature = [specs] if is_alone else None
                    self._functions[key] = _traced(step or self._step, signature, jit_compile)
                function = self._functions[key]
        tensors = tf.nest.map_structure(tf.convert_to_tensor, features)
        if is_alone:
            outputs = function(tensors)
        else:
            outputs = strategy.gather(function(_dealt(tensors, strategy)), axis=0)
        return tf.nest.map_structure(np.array, outputs)

    def _step(self, features):
        return self._model.distribute_strategy.run(self._model.predict_step, args=(features,))


def _traced(step, signature, jit_compile):
    options = {"autograph": False, "jit_compile": jit_compile or None}
    function = tf.function(step, signature, reduce_retracing=signature is None, **options)
    if signature is not None:
        function.get_concrete_function()  # traced by the thread that holds the lock
    return function


def _dealt(tensors, strategy):
    """Returns the features of a batch with the rows of each replica."""
    count, parts = len(next(iter(tensors.values()))), strategy.num_replicas_in_sync

    def own_rows(context):
        number = context.replica_id_in_sync_group
        rows = slice(count * number // parts, count * (number + 1) // parts)
        return {name: values[rows] for name, values in tensors.items()}

    return strategy.experimental_distribute_values_from_function(own_rows)
