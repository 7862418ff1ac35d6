"""Traced steps of `fit`, `evaluate` and `predict` that do not outlive the weights in the traces."""

import operator
import types
import weakref

import keras


class RetracingModel(keras.Model):
    """A Keras model that traces a step again if other weights are there or trained than before.

    Each step is checked by itself: validation inside `fit` must not drop `fit`'s own step.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        # By step, as weak references. Keras does not look into such an object for variables.
        self._traced_weights = types.SimpleNamespace()

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
        known = [reference() for reference in getattr(self._traced_weights, step, ())]
        if len(known) != len(weights) or not all(map(operator.is_, known, weights)):
            setattr(self._traced_weights, step, [weakref.ref(weight) for weight in weights])
            setattr(self, f"{step}_function", None)
