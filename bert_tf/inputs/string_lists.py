"""Lists of lists of strings: sentences of words, documents of sentences."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


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
