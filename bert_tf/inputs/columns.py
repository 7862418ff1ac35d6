"""What users pass as columns: containers of rows from any library, and the texts in them.

Rows are selected by position, never by a pandas label. No such library is imported here.
"""

import contextlib
import itertools
import numbers
import types
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError, UserError, require, user_error

PAIRS_ARE = "Pairs are a tuple of two lists, (firsts, seconds), or a list of tuples of two strings."
SHOWN_ROWS = 10  # the maximum number of rows that an error names
# The types of pandas's missing values, which a comparison does not find as it finds NaN.
_MISSING_TYPES = ("NAType", "NaTType")


class TextColumns(tuple):
    """The texts of n examples: one array of n rows for each text of an example.

    Attributes:
        is_single: Whether the user passed one example by itself and not a list.
        inputs: What the user passed after the texts, by name: arrays of n rows.
    """

    is_single = False
    inputs: Mapping[str, np.ndarray] = types.MappingProxyType({})

    @property
    def num_rows(self) -> int:
        """n."""
        return len(self[0])

    def select(self, part: slice) -> "TextColumns":
        """Returns some of the examples."""
        columns = TextColumns(column[part] for column in self)
        columns.inputs = {name: values[part] for name, values in self.inputs.items()}
        return columns


def is_list(row: Any) -> bool:
    """Returns whether `row` is a container, as of words, and no text.

    Example:
        >>> is_list(["Ada", "wrote"]), is_list("Ada wrote")
        (True, False)
    """
    return is_container(row) and np.ndim(row[:1] if isinstance(row, (list, tuple)) else row) > 0


def holds_lists(x: Any) -> bool:
    """Returns whether `x` is a container of containers, or empty and no tuple.

    Example:
        >>> holds_lists([["Ada", "wrote"]]), holds_lists(["Ada wrote"])
        (True, False)
    """
    if (not isinstance(x, Collection) and not hasattr(x, "__array__")) or not is_container(x):
        return False
    if isinstance(x, tuple) and not x:
        return False
    rows = plain_rows(x)
    first = next(itertools.filterfalse(is_missing, rows), [])
    return is_list(first)


def holds_text(x: Any) -> bool:
    """Returns whether `x` is raw text: a string, or a container of strings or of rows of strings.

    A tuple is raw text if one of its members is. So is an empty container that is no tuple.
    """
    if isinstance(x, TextColumns) or is_text(x):
        return True
    if isinstance(x, tuple):
        return any(holds_text(part) for part in x)
    if isinstance(x, (tf.Tensor, tf.Variable)):
        return x.dtype == tf.string
    names = column_names(x)
    if names is not None:
        return any(holds_text(x[name]) for name in names)
    if not is_container(x) or (not isinstance(x, Collection) and not hasattr(x, "__array__")):
        return False
    rows = plain_rows(x)
    if isinstance(rows, np.ndarray):
        if rows.size and rows.dtype != object:
            return rows.dtype.kind in "US"
        rows = rows.reshape(-1)
    return all(map(is_missing, rows)) or any(map(_is_row_of_text, rows))


def _is_row_of_text(row):
    """Returns whether a row is a string, or a tuple, list or array that begins with one."""
    if hasattr(row, "__array__"):
        row = np.asarray(row)
    while isinstance(row, (tuple, list, np.ndarray)) and np.size(row[:1]):
        row = row[0]
    return is_text(row)


def as_columns(
    x: Any, errors: str = "strict", inputs: Mapping[str, Any] = types.MappingProxyType({})
) -> TextColumns:
    """Returns raw text, single or in pairs, as columns of UTF-8.

    Args:
        x: Raw text in one of the forms that `TaskModel` takes.
        errors: "strict" refuses text that is not UTF-8, "replace" leaves that to the tokenizer.
        inputs: The `given_inputs` of a task's spec, which follow the texts in a tuple.

    Returns:
        For K texts in an example, K arrays of bytes `[n]`.

    Raises:
        DataError: If a text is missing, is no string or is not UTF-8; the rows are named.
        UserError: If the columns are not of one length, or `x` is no text at all.
    """
    if isinstance(x, TextColumns):
        return x
    if inputs:
        return _columns_with_inputs(x, errors, inputs)
    parts, is_single = _parts(x)
    columns = TextColumns(text_column(part, errors) for part in parts)
    columns.is_single = is_single
    if len(set(map(len, columns))) != 1:
        expected = "have the same number of rows"
        raise user_error("All texts of a tuple", expected, [len(column) for column in columns])
    return columns


def without_lists(x: Any) -> Any:
    """Returns examples of several texts with columns of strings only, for `as_columns`.

    A column of lists, such as hard negatives, becomes a column for each text of a list.

    Args:
        x: Raw text in one of the forms that `TaskModel` takes, in which texts of an example after
            the first may be lists or arrays of m strings.

    Raises:
        DataError: If a list is missing, empty, or not as long as the first one. Its row is named.

    Example:
        >>> without_lists((["capital?"], ["Paris"], [["Rome", "Oslo"]]))
        (['capital?'], ['Paris'], ('Rome',), ('Oslo',))
    """
    if isinstance(x, TextColumns) or is_text(x):
        return x
    parts, is_single = _parts(x)
    if is_single or len(parts) < 2:
        return x
    return tuple(column for part in parts for column in _columns_of_lists(part))


def _columns_of_lists(part):
    """Returns a column of texts as it is, a column of lists as one column for each text."""
    if not holds_lists(part) or not len(part):
        return [part]
    rows = plain_rows(part)
    refuse_missing(rows, "x")
    for row, members in enumerate(rows):
        count = len(members) if is_list(members) else None
        if not count or count != len(rows[0]):
            received = f"{count} texts in row {row}" if count else f"{shown(members)} in row {row}"
            raise DataError(
                f"Lists of texts must have as many texts in every row, at least one. Received: "
                f"{received}, {shown(rows[0])} in row 0. Leave out the rows with fewer texts."
            )
    return list(zip(*map(plain_rows, rows)))


def _columns_with_inputs(x, errors, inputs):
    if is_container(x) and not isinstance(x, tuple) and not len(x):
        x = ([], *(np.zeros([0, *each.shape]) for each in inputs.values()))
    if not isinstance(x, tuple) or len(x) <= len(inputs):
        received = f"a tuple of {len(x)}" if isinstance(x, tuple) else type(x).__name__
        expected = f"be a tuple, (texts, {', '.join(inputs)})"
        raise user_error("Examples of this task", expected, received)
    texts, given = x[: -len(inputs)], x[-len(inputs) :]
    columns = as_columns(texts[0] if len(texts) == 1 else texts, errors)
    columns.inputs = {}
    for (name, each), values in zip(inputs.items(), given, strict=True):
        values = np.asarray(values, each.dtype)
        values = values[np.newaxis] if columns.is_single else values
        shape = (columns.num_rows, *each.shape)
        rule = f"must have a row for every text, the shape {shape}"
        require(values.shape == shape, rule, UserError, **{f"{name}.shape": values.shape})
        columns.inputs[name] = values
    return columns


def _parts(x):
    """Returns the unchecked columns of `x`, and whether it is one example."""
    if is_text(x):
        return ([x],), True
    if hasattr(x, "__array__") and np.ndim(x) == 0:
        return (np.reshape(x, [1]),), True
    if isinstance(x, tuple):
        require(x, "must be texts", UserError, PAIRS_ARE, x=())
        if not all(is_text(part) for part in x):
            return x, False
        if len(x) > 3:
            expected = "be a list of strings; a tuple of strings is the texts of one example"
            raise user_error("Texts", expected, f"a tuple of {len(x)} strings. Pass `list(texts)`.")
        return [[part] for part in x], True
    names = column_names(x)
    if names is not None:
        _require_columns_of_text(x, names)
        return [x[name] for name in names], False
    rows = plain_rows(x)
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1]:
        return list(rows.T), False  # [n, K]
    first = next(itertools.filterfalse(is_missing, rows), None)
    if not isinstance(first, tuple):
        return (rows,), False
    refuse_missing(rows, "x")
    for number, row in enumerate(rows):
        if not isinstance(row, tuple) or len(row) != len(first):
            raise DataError(
                f"Tuples of {len(first)} strings must be in every row, because row 0 has one. "
                f"Received in row {number}: {shown(row)}. {PAIRS_ARE}"
            )
    return list(zip(*rows)), False


def refuse_labels_in(x: Any, y: Any) -> None:
    """Raises `UserError` if the labels are a column of the table that is passed as texts."""
    name, names = getattr(y, "name", None), column_names(x)
    if names is not None and name is not None and name in names:
        raise UserError(
            f"`x` must be the texts, without the labels: `y` is its column {name!r}. Received: a "
            f"{type(x).__name__} with the columns {names}. Pass the column of the texts, such as "
            "`frame['text']`."
        )


def _require_columns_of_text(frame, names):
    texts = [name for name in names if holds_text(frame[name])]
    if len(texts) != len(names):
        columns = " or ".join(f"`frame[{name!r}]`" for name in texts)
        raise UserError(
            "`x` must be the texts, not a whole table. Received: a "
            f"{type(frame).__name__} with the columns {names}. Pass {columns}, or two columns of "
            "text for pairs."
        )


def flat_strings(lists: Sequence[Sequence[str]]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the strings of all lists, `[W]`, and their row splits, int64.

    Example:
        >>> strings, row_splits = flat_strings([["Ada", "wrote"], [], ["Why"]])
        >>> row_splits.numpy()
        array([0, 2, 2, 3])
    """
    strings = tf.constant([string for row in lists for string in row], tf.string)
    lengths = np.array([len(row) for row in lists], np.int64)
    return strings, tf.constant(np.concatenate([[0], np.cumsum(lengths)]), tf.int64)


def text_column(values: Any, errors: str = "strict", name: str = "x") -> np.ndarray:
    """Returns one column of text as an array of bytes `[n]`.

    Args:
        values: A container of strings, or an array `[n, 1]` of them; or one string.
        errors: See `as_columns`.
        name: The name of the values, for errors.

    Raises:
        DataError: See `as_columns`.
        UserError: If `values` is an array of another shape.
    """
    rows = [values] if is_text(values) else plain_rows(values, name)
    if isinstance(rows, np.ndarray) and rows.ndim != 1:
        if rows.ndim != 2 or rows.shape[1] != 1:
            received = f"an array of shape {rows.shape}. {PAIRS_ARE}"
            raise user_error("A column of text", "be strings [n] or [n, 1]", received)
        rows = rows[:, 0]  # [n, 1] -> [n]
    if set(map(type, rows)) == {str}:
        with contextlib.suppress(UnicodeError):  # the loop names the rows
            return np.fromiter(map(str.encode, rows), object, len(rows))
    refuse_missing(rows, name)
    column = np.empty(len(rows), object)
    malformed = []
    for row, value in enumerate(rows):
        if not is_text(value):
            way_out = f" {PAIRS_ARE}" if isinstance(value, (list, tuple, np.ndarray)) else ""
            raise DataError(
                f"A string must be in every row of `{name}`. Received in row {row}: {shown(value)}."
                f"{way_out}"
            )
        try:
            column[row] = utf8(value, errors)
        except UnicodeError:
            malformed.append(row)
    if malformed:
        raise DataError(
            f"`{name}` must be valid Unicode, as bytes UTF-8. Received: malformed text in "
            f"{named_rows(malformed)}, such as {rows[malformed[0]]!r}. Decode it with its real "
            "encoding, or make the tokenizer with errors='replace', which drops malformed parts."
        )
    return column


def utf8(text: str | bytes, errors: str) -> bytes:
    """Returns the bytes of `text`; with errors="strict", malformed text is a `UnicodeError`."""
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass" if errors == "replace" else "strict")
    if errors == "strict":
        text.decode("utf-8")
    return bytes(text)


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
        expected = "be a list, array, tensor or column with one row per example"
        raise user_error(f"`{name}`", expected, f"{name}={shown(values)}")
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
        rows = np.flatnonzero(list(map(is_missing, values))).tolist()
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
