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
        weights = model.weights
        if step == "train":  # it also matters which are trained
            weights = [*weights, *model.trainable_weights]
        known = [reference() for reference in self._weights.get(step, ())]
        are_same = len(known) == len(weights) and all(map(operator.is_, known, weights))
        if are_same and self._settings.get(step) == settings:
            return False
        self._weights[step] = [weakref.ref(weight) for weight in weights]
        self._settings[step] = settings
        return True


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
