"""Traced steps of `fit`, `evaluate` and `predict` that do not outlive the weights in the traces."""

import operator
import weakref

import keras


class RetracingModel(keras.Model):
    """A Keras model that traces a step again if other weights are there or trained than before.

    Each step is checked by itself: validation inside `fit` must not drop `fit`'s own step.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._traced_weights = _TracedWeights()

    def make_train_function(self, force=False):
        self.invalidate_traces("train")
        return super().make_train_function(force)

    def make_test_function(self, force=False):
        self.invalidate_traces("test")
        return super().make_test_function(force)

    def make_predict_function(self, force=False):
        self.invalidate_traces("predict")
        return super().make_predict_function(force)

    def invalidate_traces(self, step: str) -> None:
        """Drops the traced function of a step if the weights are not those at the last call."""
        weights = self.weights
        if step == "train":  # it also matters which are trained
            weights = [*weights, *self.trainable_weights]
        if self._traced_weights.replace(step, weights):
            setattr(self, f"{step}_function", None)


class _TracedWeights:
    """Weak references to the weights that each step was traced with."""

    def __init__(self):
        self._references = {}

    def replace(self, step: str, weights: list[keras.Variable]) -> bool:
        """Remembers the weights of a step; returns whether they differ from those before."""
        known = [reference() for reference in self._references.get(step, [])]
        if len(known) == len(weights) and all(map(operator.is_, known, weights)):
            return False
        self._references[step] = [weakref.ref(weight) for weight in weights]
        return True
