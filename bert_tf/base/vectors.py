"""Checks of vectors, matrices and counts that users pass."""

import operator
from typing import Any

import keras
import numpy as np

from bert_tf.errors import UserError, require, user_error

_LARGE = 1e15  # float32 has numbers up to 3e38


def as_whole_number(value: int, name: str, least: int = 1) -> int:
    """Returns an integer. Raises `UserError` with the `name` if it is none, or below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    require(number >= least, f"must be an integer of at least {least}", UserError, **{name: value})
    return number


def as_array(values: Any, name: str) -> np.ndarray:
    """Returns values as an array: float32, or as they are if they are one (also a `np.memmap`).

    Raises:
        UserError: If they are no numbers, or lists of several lengths. The message has the `name`.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OSU":
        return values
    try:
        return np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        received = f"{type(values).__name__} ({error})."
        raise user_error(f"`{name}`", "be an array of numbers", received) from None


def as_matrix(vectors: np.ndarray, name: str) -> np.ndarray:
    """Returns vectors `[n, dim]` as an array; a `np.memmap` is not read.

    Raises:
        UserError: If they have another shape or are no numbers. The message has their `name`.
    """
    vectors = as_array(vectors, name)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise UserError(f"`{name}` must be [n, dim]. Received: {name}.shape={vectors.shape}.")
    return vectors


def as_finite_floats(
    vectors: np.ndarray, normalize: bool, name: str = "query_vectors` and `corpus_matrix"
) -> np.ndarray:
    """Returns a block of vectors as float32, scaled to length 1 if `normalize`.

    Raises:
        UserError: If a value is not finite. The message has the `name`.
    """
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise UserError(f"`{name}` must be finite. Received: NaN or infinity.")
    if not normalize:
        return vectors
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    if largest.max(initial=0) > _LARGE:  # the sum of squares could be infinite
        vectors = vectors / np.maximum(largest, 1)
    return keras.utils.normalize(vectors)
