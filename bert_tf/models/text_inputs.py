"""Raw strings in, token dictionaries out, around Keras's `fit`, `evaluate` and `predict`."""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError


def holds_text(x: Any) -> bool:
    """Whether `x` is text: a string, a list, array or tensor of strings, a list of such lists, a
    tuple of two or three of those, or a dataset whose features are strings."""
    if isinstance(x, tf.data.Dataset):
        return any(spec.dtype == tf.string for spec in tf.nest.flatten(_features(x.element_spec)))
    if isinstance(x, str):
        return True
    if isinstance(x, tuple) and len(x) in (2, 3):
        return all(holds_text(part) for part in x)
    if isinstance(x, (tf.Tensor, tf.Variable)):
        return x.dtype == tf.string
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "US" or (x.dtype == object and x.size > 0 and _is_text(x.flat[0]))
    if not isinstance(x, list) or not x:
        return False
    first = x[0]
    if isinstance(first, (list, tuple, np.ndarray)) and len(first):  # the choices of a prompt
        first = first[0]
    return _is_text(first)


def as_columns(x: Any) -> tuple[np.ndarray, ...]:
    """One array of strings, or for tuples several of the same length."""
    if isinstance(x, str):
        x = [x]
    columns = x if isinstance(x, tuple) else (x,)
    columns = tuple(_column(column) for column in columns)
    if len({len(column) for column in columns}) != 1:
        raise UserError(
            "All texts of a tuple must have the same number of rows. "
            f"Received: {[len(column) for column in columns]}"
        )
    return columns


def _column(values) -> np.ndarray:
    if isinstance(values, (tf.Tensor, tf.Variable)):
        values = values.numpy()
    for row, value in enumerate(values):
        if not _is_text(value):
            raise UserError(f"Text was expected in every row. Received in row {row}: {value!r}")
    return np.array([v.encode() if isinstance(v, str) else bytes(v) for v in values], dtype=object)


def _features(element_spec):
    return element_spec[0] if isinstance(element_spec, tuple) else element_spec


def _is_text(value) -> bool:
    return isinstance(value, (str, bytes))
