"""Rows of ragged tensors in memory that grows with the number of their values.

`RaggedTensor.value_rowids`, `tf.repeat`, `tf.ragged.boolean_mask` and reductions of ragged tensors
fill a matrix that is as wide as the longest row: one long text among a thousand short ones takes
gigabytes.

Glossary: `B` rows, `N` values of all rows.
"""

import tensorflow as tf


def row_ids(row_splits: tf.Tensor) -> tf.Tensor:
    """Returns the row of each value, `[N]`, from row splits `[B + 1]`, in their dtype.

    Example:
        >>> row_ids(tf.constant([0, 2, 2, 3])).numpy()
        array([0, 0, 2], dtype=int32)
    """
    ends = row_splits[1:]
    ended = tf.scatter_nd(ends[:, tf.newaxis], tf.ones_like(ends), [row_splits[-1] + 1])  # [N + 1]
    return tf.cumsum(ended)[:-1]


def repeated(counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each index as often as `counts` (int64) says, and which repetition it is, int64.

    Example:
        >>> indices, repetitions = repeated(tf.constant([2, 0, 1], tf.int64))
        >>> indices.numpy(), repetitions.numpy()
        (array([0, 0, 2]), array([0, 1, 0]))
    """
    splits = tf.pad(tf.cumsum(counts), [[1, 0]])
    indices = row_ids(splits)
    return indices, tf.range(tf.size(indices, tf.int64)) - tf.gather(splits, indices)


def kept_values(rows: tf.RaggedTensor, kept: tf.Tensor) -> tf.RaggedTensor:
    """Returns the values of rows `[B, (…)]` for which `kept`, bool `[N]`, is True.

    Example:
        >>> rows = tf.ragged.constant([[1, 2], [3]])
        >>> kept_values(rows, tf.constant([False, True, True]))
        <tf.RaggedTensor [[2], [3]]>
    """
    before = tf.cumsum(tf.cast(tf.concat([[False], kept], axis=0), rows.row_splits.dtype))
    values, splits = tf.boolean_mask(rows.values, kept), tf.gather(before, rows.row_splits)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def joined_strings(rows: tf.RaggedTensor, separator: str = "") -> tf.Tensor:
    """Returns the strings of each row `[B, (…)]` as one, `[B]`.

    Example:
        >>> joined_strings(tf.ragged.constant([["a", "b"], []]), " ").numpy()
        array([b'a b', b''], dtype=object)
    """
    ids, count = row_ids(rows.row_splits), rows.nrows()
    return tf.strings.unsorted_segment_join(rows.values, ids, count, separator)
