"""The rows of any container by their place, whatever library made it.

A pandas Series, a Polars or pyarrow column, a tensor: all become a NumPy array or a list. Rows are
taken by place, never by an index label. None of these libraries is imported here.
"""

from collections.abc import Collection, Iterator, Mapping, Set
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError, UserError

SHOWN_ROWS = 10  # so many rows are named in an error
# pandas's marks for a missing value; unlike NaN they cannot be found by comparing.
_MISSING_TYPES = ("NAType", "NaTType")


def is_container(values: Any) -> bool:
    """Whether `plain_rows` takes `values`."""
    if isinstance(values, (str, bytes, Mapping, Set, tf.data.Dataset)):
        return False
    return hasattr(values, "__array__") or isinstance(
        values, (Collection, Iterator, tf.RaggedTensor)
    )


def plain_rows(values: Any, name: str = "x") -> np.ndarray | list:
    """The rows of a container as a NumPy array or a list.

    Args:
        values: A list, tuple, NumPy array, tensor, deque or iterator; a column or data frame of
            pandas, Polars or pyarrow; a column of a Hugging Face data set.
        name: What the values are, for the error.

    Returns:
        An array `[n, ...]`, or a list of n rows.

    Raises:
        UserError: If `values` is no container, or one without an order.

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
            f"`{name}` must be a list, array, tensor or column with a row for every example. "
            f"Received: {name}={shown(values)}"
        )
    return np.asarray(values) if hasattr(values, "__array__") else list(values)


def row_array(values: Any, name: str) -> np.ndarray:
    """`plain_rows` as an array; rows that differ in length are the objects of an array `[n]`.

    Args:
        values: As in `plain_rows`.
        name: As in `plain_rows`.
    """
    rows = plain_rows(values, name)
    if isinstance(rows, list):
        if any(is_text(row) or is_missing(row) or isinstance(row, Set) for row in rows):
            return object_array(rows)
        try:
            return np.asarray(rows)
        except ValueError:  # rows of different lengths
            return object_array(rows)
    return rows


def object_array(rows) -> np.ndarray:
    """An array `[n]` of Python objects, also where these are lists of the same length."""
    array = np.empty(len(rows), object)
    for place, row in enumerate(rows):
        array[place] = row
    return array


def is_text(value: Any) -> bool:
    """Whether `value` is one string."""
    return isinstance(value, (str, bytes))


def is_missing(value: Any) -> bool:
    """Whether `value` is None, NaN or pandas's `NA`."""
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


def refuse_missing(values, name: str) -> None:
    """Raises `DataError` that names the rows in which a value is missing.

    Args:
        values: An array `[n, ...]` or a list.
        name: What the values are.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "fc":
        missing = np.isnan(values).any(axis=tuple(range(1, values.ndim)))
        rows = np.flatnonzero(missing).tolist()
    elif isinstance(values, np.ndarray) and values.dtype != object:
        rows = []
    else:
        rows = [row for row, value in enumerate(values) if is_missing(value)]
    if rows:
        raise DataError(
            f"`{name}` must have a value in every row. Received: missing values (None or NaN) in "
            f"{named_rows(rows)} of {len(values)}. Leave these rows out, or fill them."
        )


def named_rows(rows: list[int]) -> str:
    """Numbers of rows for an error: the first of them, and how many more there are."""
    shown = ", ".join(map(str, rows[:SHOWN_ROWS]))
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def shown(value: Any) -> str:
    """A value for an error, cut where it is long."""
    text = repr(value)
    return text if len(text) < 80 else f"{type(value).__name__} {text[:60]}…"
