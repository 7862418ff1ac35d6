"""Labels and weights of `n` examples and `C` classes as arrays, from whatever a user passes."""

import numbers
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError, UserError, user_error
from bert_tf.inputs.columns import is_text, named_rows, plain_rows, refuse_missing, row_array

IGNORED = -100  # the label of padding and of tokens without one; PyTorch's `ignore_index`
UNKNOWN_LABELS = "Labels must be among those that the model knows"  # how their errors begin


def class_names(labels: Sequence[Any] | None) -> list[str] | None:
    """Returns the names of classes as strings; None for None.

    Raises:
        UserError: If they have no order, or a name is no valid Unicode.
        DataError: If a name is missing.
    """
    if labels is None:
        return None
    if isinstance(labels, (str, Set, Mapping)):
        expected = "be a list of names, in the order of their ids"
        raise user_error("`labels`", expected, f"a {type(labels).__name__}, {labels!r:.200}")
    rows = plain_rows(labels, "labels")
    if isinstance(rows, np.ndarray) and rows.ndim != 1:
        expected = "be a list of names, one for each class"
        raise user_error("`labels`", expected, f"an array of shape {rows.shape}")
    refuse_missing(rows, "labels")
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in rows]
    for name in names:
        if name != name.encode("utf-8", "replace").decode("utf-8"):
            raise UserError(f"`labels` must be valid Unicode. Received: {name!r}")
    return names


def check_labels(labels: Sequence[str] | None, num_classes: int) -> None:
    """Raises `UserError` unless the names are different and as many as classes."""
    if labels is None:
        return
    names = list(labels)
    repeated = [name for name, count in Counter(names).items() if count > 1][:10]
    if repeated:
        raise UserError(
            "`labels` must be different names, one for each class, in the order of their ids. "
            f"Received: {len(names)} names, several times {repeated}. The names in a column `y` "
            "are `sorted(set(y))`."
        )
    if len(names) != num_classes:
        received = f"{len(names)} names, {names[:10]}, num_classes={num_classes}"
        raise user_error("`labels`", f"be {num_classes} names, one for each class", received)


def number_rows(y: Any, name: str = "y") -> np.ndarray:
    """Returns labels that are numbers, or strings of them, `[n, ...]`; numbers keep their dtype.

    Raises:
        DataError: If a number is missing, or a row is none.
    """
    array = row_array(y, name)
    refuse_missing(array, name)
    if array.dtype.kind in "biuf":
        return array
    values = np.empty(array.shape, np.float32)
    for place, value in np.ndenumerate(array):
        try:
            values[place] = float(value)
        except (TypeError, ValueError):
            raise DataError(
                f"`{name}` must have a number in every row. Received in row {place[0]}: {value!r}"
            ) from None
    refuse_missing(values, name)  # "nan"
    return values


def read_regression_labels(y: Any, num_outputs: int) -> np.ndarray:
    """Returns labels of a regression as float32 `[n]`, for several outputs `[n, num_outputs]`.

    Raises:
        DataError: If a number is missing or not finite, or a row has another width.
    """
    values = number_rows(y).astype(np.float32)
    width, shape = (num_outputs,), f"[n, {num_outputs}] for {num_outputs} outputs"
    if num_outputs == 1:
        values, width, shape = _as_vector(values), (), "[n] or [n, 1] for 1 output"
    if values.shape[1:] != width:
        received = f"an array of shape {values.shape}"
        raise user_error("`y`", f"be numbers of shape {shape}", received, DataError)
    if not np.isfinite(values).all():
        raise DataError(f"`y` must be finite numbers. Received: {values[~np.isfinite(values)][0]}")
    return values


def _as_vector(array):
    """`[n, 1]` -> `[n]`; other shapes stay."""
    return array[:, 0] if array.shape[1:] == (1,) else array


def class_id(label: Any, labels: Sequence[str] | None, num_classes: int | None) -> int:
    """Returns the id of a class by its name; without names a string may be the id itself.

    Raises:
        DataError: If no class has the name.
    """
    name = label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)
    if labels is not None and name in labels:
        return labels.index(name)
    if labels is None:
        require_ids([label])
        return _checked_ids(np.array([int(name)]), num_classes)[0]
    raise DataError(f"{UNKNOWN_LABELS}: {labels}. Received: {label!r}")


def require_ids(values: Sequence[Any]) -> None:
    """Raises `DataError` for labels that are no ids, also as strings, of a model without names."""
    texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
    names = {text for text in texts if isinstance(text, str) and not text.strip().isdecimal()}
    if names:
        row = next(row for row, text in enumerate(texts) if text in names)
        shown = sorted(names)[:20] + ([...] if len(names) > 20 else [])
        raise DataError(
            "`y` must be ids of classes, because the model has no names. Received in row "
            f"{row}: {values[row]!r}. Make the model with `labels={shown}`, or set `model.labels`."
        )


def holds_numbers(array: np.ndarray) -> bool:
    """Returns whether labels, a `row_array`, are numbers or truth values, `[n]` or `[n, 1]`."""
    array = _as_vector(array)
    if array.dtype == object:
        return any(isinstance(row, numbers.Real) for row in array)
    return array.ndim == 1 and array.dtype.kind in "biuf"


def class_ids(
    y: Any, labels: Sequence[str] | None, num_classes: int | None, keep_rows: bool = False
) -> np.ndarray:
    """Returns labels of one class for each example as ids, int32 `[n]`.

    Args:
        y: Names or ids `[n]` or `[n, 1]`, or one-hot rows `[n, C]`.
        labels: The names in the order of their ids, or None.
        num_classes: C, or None where that differs from batch to batch.
        keep_rows: Whether labels `[n, ...]` of several numbers are returned unchanged.

    Raises:
        DataError: If a label is missing, unknown or out of range, or a row has another width.
    """
    array = _as_vector(row_array(y, "y"))
    refuse_missing(array, "y")
    numeric = array.dtype.kind in "biuf"
    if keep_rows and numeric and array.ndim > 1:
        return array
    if array.ndim == 2 and numeric and array.shape[1] == (num_classes or array.shape[1]):
        return _ids_of_one_hot(array)
    if array.ndim != 1:
        raise _no_class(f"an array of shape {array.shape}", num_classes)
    ids = array if array.dtype.kind in "iu" else _ids_of_names(array, labels, num_classes)
    if num_classes is not None:
        check_ids(ids, num_classes, "Class ids")
    return ids.astype(np.int32)


def _no_class(received, num_classes):
    rows = f", or one-hot rows [n, {num_classes}]" if num_classes else ""
    expected = f"be one class for each example, [n] or [n, 1]{rows}"
    return user_error("`y`", expected, received, DataError)


def _ids_of_names(names, labels, num_classes):
    """Returns the ids int64 `[n]` of names, or of numbers of another type than integers."""
    if labels is None:
        require_ids(names.tolist())
    known = {name: place for place, name in enumerate(labels or ())}
    ids = np.empty(len(names), np.int64)
    for row, label in enumerate(names.tolist()):
        if isinstance(label, (list, tuple, Set, Mapping, np.ndarray)):
            raise _no_class(f"{label!r} in row {row}", num_classes)
        is_name = isinstance(label, bool) and str(label) in known  # "True", "False"
        if isinstance(label, numbers.Real) and not is_name:
            if not float(label).is_integer():
                raise DataError(f"Class ids must be integers. Received in row {row}: {label!r}")
            ids[row] = int(label)
        else:
            ids[row] = known[label] if label in known else class_id(label, labels, num_classes)
    return ids


def _checked_ids(ids, num_classes):
    if num_classes is not None and ids.size and (ids.min() < 0 or ids.max() >= num_classes):
        received = f"{ids.min()} to {ids.max()}"
        raise user_error("Class ids", f"be in [0, {num_classes})", received, DataError)
    return ids.astype(np.int32)


def _ids_of_one_hot(rows):
    is_one_hot = ((rows == 0) | (rows == 1)).all(axis=1) & (rows.sum(axis=1) == 1)
    if not is_one_hot.all():
        row = int(np.argmin(is_one_hot))
        raise DataError(
            "One-hot rows must hold one 1 and otherwise 0. Received in row "
            f"{row}: {rows[row].tolist()}. A loss on probabilities, "
            "keras.losses.CategoricalCrossentropy(from_logits=True), takes others."
        )
    return rows.argmax(axis=1).astype(np.int32)


class IdsInGraph:
    """Names of classes `[B]`, or without `labels` ids as strings, to ids `[B]`, in a graph."""

    def __init__(self, labels: Sequence[str] | None, num_classes: int):
        self.names = list(labels or map(str, range(num_classes)))
        self._way_out = "" if labels else ", ids. Make the model with `labels=[…]` for names"
        ids = tf.range(num_classes)
        table = tf.lookup.KeyValueTensorInitializer(self.names, ids, tf.string, tf.int32)
        self._table = tf.lookup.StaticHashTable(table, default_value=-1)

    def __call__(self, names: tf.Tensor) -> tf.Tensor:
        names = tf.reshape(names, [-1])  # [B] or [B, 1] -> [B]
        ids = self._table.lookup(names)
        unknown = tf.boolean_mask(names, ids < 0)
        received = [f"{UNKNOWN_LABELS}: {self.names}{self._way_out}. Received:", unknown]
        with tf.control_dependencies([tf.debugging.Assert(tf.size(unknown) == 0, received)]):
            return tf.identity(ids)


def class_sets(y: Any, labels: Sequence[str] | None, num_classes: int) -> np.ndarray:
    """Returns labels of any number of classes for each example as rows float32 `[n, C]`.

    `y` has a container of names or a set of ids for each example, or is `[n, C]` in [0, 1].

    Raises:
        DataError: If a label is missing or unknown, or a row is of another kind or width.
    """
    array = row_array(y, "y")
    refuse_missing(array, "y")
    if num_classes == 1 and array.ndim == 1 and array.dtype.kind in "biuf":
        array = array[:, np.newaxis]  # [n] -> [n, 1]
    if array.ndim == 2 and array.dtype.kind in "biuf" and array.shape[1] == num_classes:
        return _shares(array.astype(np.float32))
    if labels is None:
        rows = (list(members) for members in array if isinstance(members, (Set, list, tuple)))
        require_ids([member for members in rows for member in members])
    targets = np.zeros([len(array), num_classes], np.float32)
    for row, members in enumerate(array):
        if isinstance(members, np.ndarray):
            members = members.tolist()
        if isinstance(members, (Set, list, tuple)) and all(map(is_text, members)):
            targets[row, [class_id(name, labels, num_classes) for name in members]] = 1.0
        elif isinstance(members, Set):
            ids = class_ids(list(members), labels, None)
            targets[row, _checked_ids(ids, num_classes)] = 1.0
        elif isinstance(members, (list, tuple)) and len(members) == num_classes:
            targets[row] = number_rows(members)
        else:
            raise DataError(
                "`y` must have in every row a list of names, a set of names or ids, or 0 or 1 for "
                f"each of the {num_classes} labels. Received in row {row}: {members!r}"
            )
    return _shares(targets)


def _shares(targets):
    outside = ((targets < 0) | (targets > 1)).any(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
        raise DataError(
            "Rows of several labels must hold numbers in [0, 1]. "
            f"Received in row {row}: {targets[row].tolist()}"
        )
    return targets


def are_labels_of_tokens(y: Any, x: Any) -> bool:
    """Returns whether labels are an array that came with a token dictionary."""
    return isinstance(x, dict) and isinstance(y, np.ndarray)


def check_ids(y: np.ndarray, limit: int, name: str, ignored: int | None = None) -> None:
    """Checks labels that are the ids of classes, or the numbers of tokens, choices or documents.

    Args:
        y: The labels, `[n, ...]`.
        limit: How many ids there are.
        name: What an error calls the labels, in the plural.
        ignored: Stands for no label; None: every row must have its labels.

    Raises:
        DataError: If a label is out of range. The message names the rows.
    """
    is_wrong = (y < 0) | (y >= limit)
    if ignored is not None:
        is_wrong &= y != ignored
    if is_wrong.any():
        rows = np.flatnonzero(is_wrong.reshape(len(y), -1).any(axis=1)).tolist()
        rule = f"in [0, {limit})" + ("" if ignored is None else f", or {ignored} for no label")
        received = f"{y[is_wrong][0]:g} in {named_rows(rows)}"
        raise user_error(name, f"be {rule}", received, DataError)


def row_weights(weights: Any, num_rows: int | None = None) -> np.ndarray:
    """Returns sample weights `[n]` or `[n, 1]` as float32 `[n]`; other shapes are kept.

    Raises:
        DataError: If a weight is missing or no number.
        UserError: If there are not `num_rows`, where that is known.
    """
    values = _as_vector(number_rows(weights, "sample_weight").astype(np.float32))
    if num_rows is not None and len(values) != num_rows:
        expected = f"have a row for every text: {num_rows}"
        raise user_error("`sample_weight`", expected, f"{len(values)} rows")
    return values
