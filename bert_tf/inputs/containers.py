"""Converts containers of rows, from any library, to NumPy arrays or lists.

Rows are selected by position, never by a pandas label. No such library is imported here.
"""

import contextlib
import numbers
from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError, UserError

SHOWN_ROWS = 10  # the maximum number of rows that an error names
# The types of pandas's missing values, which a comparison does not find as it finds NaN.
_MISSING_TYPES = ("NAType", "NaTType")


def is_container(values: Any) -> bool:
    """Returns whether `plain_rows` accepts `values`."""
    if isinstance(values, (str, bytes, Mapping, Set, tf.data.Dataset)):
        return False
    is_sequence = isinstance(values, (Collection, Iterator, tf.RaggedTensor))
    return is_sequence or hasattr(values, "__array__")


def plain_rows(values: Any, name: str = "x") -> np.ndarray | list:
    """Returns the rows of a container as a NumPy array or a list.

    Args:
        values: A list, tuple, NumPy array, tensor, deque or iterator; a column or data frame of
            pandas, Polars or pyarrow; or a column of a Hugging Face dataset.
        name: The name of the values, for the error.

    Returns:
        An array `[n, ...]`, or a list of `n` rows.

    Raises:
        UserError: If `values` is not a container, or has no order.

    Example:
        >>> import collections
        >>> plain_rows(collections.deque(["a", "b"]))
        ['a', 'b']
    """
    if isinstance(values, (list, np.ndarray)):
        return values
    if isinstance(values, tf.RaggedTensor):
        return values.to_list()
    if not is_container(values):
        raise UserError(
            f"`{name}` must be a list, array, tensor or column with one row per example. "
            f"Received: {name}={shown(values)}."
        )
    return np.asarray(values) if hasattr(values, "__array__") else list(values)


def row_array(values: Any, name: str) -> np.ndarray:
    """Returns the rows of a container as a NumPy array `[n, ...]`; see `plain_rows`.

    Rows of different lengths become the objects of an array `[n]`.

    Raises:
        UserError: If `values` is not a container, or has no order.
    """
    rows = plain_rows(values, name)
    if not isinstance(rows, list):
        return rows
    if not any(is_text(row) or is_missing(row) or isinstance(row, Set) for row in rows):
        with contextlib.suppress(ValueError):  # rows of different lengths
            return np.asarray(rows)
    return object_array(rows)


def object_array(rows) -> np.ndarray:
    """Returns an array `[n]` of Python objects, even if they are lists of the same length."""
    return np.fromiter(rows, object, len(rows))


def is_text(value: Any) -> bool:
    """Returns whether `value` is one string."""
    return isinstance(value, (str, bytes))


def is_missing(value: Any) -> bool:
    """Returns whether `value` is None, NaN, or pandas's `NA` or `NaT`."""
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


def refuse_missing(values, name: str) -> None:
    """Checks that no value is missing; `name` is that of the values in the error.

    Raises:
        DataError: If a value is missing. The message names the rows.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "fc":
        missing = np.isnan(values).any(axis=tuple(range(1, values.ndim)))
        rows = np.flatnonzero(missing).tolist()
    elif isinstance(values, np.ndarray) and values.dtype != object:
        rows = []
    else:
        rows = [row for row, value in enumerate(values) if is_missing(value)]
    if rows:
        is_numeric = isinstance(values, np.ndarray) and values.dtype != object
        is_numeric |= any(isinstance(v, numbers.Number) and not is_missing(v) for v in values)
        fill = "fill the values in" if is_numeric else "fill in texts with `frame.fillna('')`"
        raise DataError(
            f"`{name}` must have a value in every row. Received: missing values (None or NaN) in "
            f"{named_rows(rows)} of {len(values)}, counted from 0. Remove these rows, in pandas "
            f"with `frame.dropna()`, or {fill}."
        )


def named_rows(rows: list[int]) -> str:
    """Returns row numbers as text for an error: the first ones and how many more there are."""
    shown = ", ".join(map(str, rows[:SHOWN_ROWS]))
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def column_names(values: Any) -> list[str] | None:
    """Returns the names of the columns of a data frame, table or data set; None for all else."""
    names = getattr(values, "column_names", None)  # pyarrow, datasets
    names = getattr(values, "columns", None) if names is None else names  # pandas, Polars
    return None if names is None or callable(names) else list(names)


def shown(value: Any) -> str:
    """Returns a value as text for an error, shortened if it is long."""
    text = repr(value)
    return text if len(text) < 80 else f"{type(value).__name__} {text[:60]}…"
