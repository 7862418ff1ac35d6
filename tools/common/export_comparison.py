"""Compares an exported SavedModel with the model from which it was made."""

import numpy as np
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import user_error
from bert_tf.models.serving_module import SERVING_DEFAULT
from bert_tf.models.task_model import TaskModel
from bert_tf.serving.export import serving_module

# What is promised of float32 outputs, of the largest number (docs/checkpoints.md).
_MOST = 1e-5


def compare_with_export(model: TaskModel, path: str, pairs: bool = False) -> float:
    """Compares the outputs for the texts with which servers warm up.

    Args:
        model: The model.
        path: Its SavedModel, with `portable=True`.
        pairs: See `export`.

    Returns:
        The largest difference between numbers.

    Raises:
        UserError: If a text differs, or a number by more than 1e-5 of the largest one.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> path = model.export("serving/reviews")
        >>> compare_with_export(model, path) < 1e-5
        True
    """
    module = serving_module(model, pairs)
    loaded = tf.saved_model.load(path)
    largest = 0.0
    for request in module.sample_texts():
        texts = {name: tf.constant(values) for name, values in request.items()}
        with ops.backend("reference"):
            expected = module.of_text(**texts)
        found = loaded.signatures[SERVING_DEFAULT](**texts)
        for name, values in expected.items():
            largest = max(largest, _difference(name, values.numpy(), found[name].numpy(), path))
    return largest


def _difference(name, expected, found, path):
    if expected.dtype.kind not in "fiu":
        if not np.array_equal(expected, found):
            expected = f"be that of the checkpoint, {expected.tolist()!r:.200}"
            raise user_error(f"`{name}` of {path}", expected, f"{found.tolist()!r:.200}")
        return 0.0
    equal = expected == found  # infinities too
    difference = np.abs(np.where(equal, 0, expected.astype(np.float64) - found))
    worst = float(difference.max(initial=0.0))
    scale = np.abs(expected, where=np.isfinite(expected), out=np.zeros(expected.shape))
    if not worst <= _MOST * max(1.0, scale.max(initial=0.0)):
        expected = f"be that of the checkpoint to {_MOST:g}"
        raise user_error(f"`{name}` of {path}", expected, f"a difference of {worst:g}")
    return worst
