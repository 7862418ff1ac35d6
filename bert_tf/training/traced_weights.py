"""Traced steps of `fit`, `evaluate` and `predict` that do not outlive what is in the traces."""

import operator
import types
import weakref
from typing import Any

import keras


class RetracingModel(keras.Model):
    """A Keras model that traces a step again if its weights or settings are others than before.

    Each step is checked by itself: validation inside `fit` must not drop `fit`'s own step.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        # Weak references by step. Keras does not look into such an object for variables.
        self._traced_weights = types.SimpleNamespace()
        self._traced_settings = types.SimpleNamespace()

    def make_train_function(self, force=False):
        self.invalidate_traces("train")
        return super().make_train_function(force)

    def make_test_function(self, force=False):
        self.invalidate_traces("test")
        return super().make_test_function(force)

    def make_predict_function(self, force=False):
        self.invalidate_traces("predict")
        return super().make_predict_function(force)

    def traced_settings(self, step: str) -> Any:
        """Returns what else than weights a step's trace depends on, to be compared with `==`."""

    def invalidate_traces(self, step: str) -> None:
        """Drops the traced function of a step unless weights and settings are the last call's."""
        settings = self.traced_settings(step)
        weights = self.weights
        if step == "train":  # it also matters which are trained
            weights = [*weights, *self.trainable_weights]
        known = [reference() for reference in getattr(self._traced_weights, step, ())]
        are_same = len(known) == len(weights) and all(map(operator.is_, known, weights))
        if not are_same or getattr(self._traced_settings, step, None) != settings:
            setattr(self._traced_weights, step, [weakref.ref(weight) for weight in weights])
            setattr(self._traced_settings, step, settings)
            setattr(self, f"{step}_function", None)


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
