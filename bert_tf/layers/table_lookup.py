"""Rows of a trained table, with a dense gradient."""

import tensorflow as tf


def lookup(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns rows of a table whose gradient is a tensor.

    The gradient of `tf.gather` is a `tf.IndexedSlices`, in which a row may be several times.
    Keras's optimizers square and clip these parts, not their sum.

    Args:
        table: `[N, E]`.
        ids: int `[R]`.

    Returns:
        `[R, E]`.
    """
    # The gradient of tf.reshape adds up the parts.
    return tf.gather(tf.reshape(table, table.shape), ids)
