"""Traced steps of `fit`, `evaluate` and `predict` that do not outlive what is in the traces."""

import operator
import weakref
from typing import Any

import keras


class Traces:
    """What the traced steps of a model were traced with, by step.

    Keras does not look into such an object for variables. Weights are held by weak references.
    """

    def __init__(self):
        self._weights = {}
        self._settings = {}

    def have_changed(self, model: keras.Model, step: str, settings: Any) -> bool:
        """Returns whether weights or settings are others than at the last call for this step.

        Args:
            model: The model.
            step: "train", "test", "predict" or another name.
            settings: What else a trace depends on, to be compared with `==`.
        """
        if self.are_of(model, step, settings):
            return False
        self._weights[step] = [weakref.ref(weight) for weight in _weights(model, step)]
        self._settings[step] = settings
        return True

    def are_of(self, model: keras.Model, step: str, settings: Any) -> bool:
        """Returns whether weights and settings are those of the last call of `have_changed`."""
        known, weights = self._weights.get(step), _weights(model, step)
        if known is None or len(known) != len(weights) or self._settings[step] != settings:
            return False
        return all(map(operator.is_, map(weakref.ref.__call__, known), weights))


def _weights(model, step):
    """Returns the variables that a trace depends on; in training also which are trained."""
    return [*model.weights, *model.trainable_weights] if step == "train" else model.weights


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
