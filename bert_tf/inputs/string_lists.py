"""Lists of lists of strings: sentences of words, documents of sentences."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.inputs.containers import is_container, is_missing, plain_rows


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
    first = next((row for row in rows if not is_missing(row)), [])
    return is_list(first)


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
