"""Checks of values, eagerly and in graphs."""

from typing import Any

import tensorflow as tf


def assert_that(condition: tf.Tensor, message: list[Any], summarize: int = 3) -> list:
    """Checks a condition when the function runs.

    `tf.debugging.Assert` begins its eager message with the repr of the condition.

    Args:
        condition: bool scalar.
        message: Strings and tensors, which are joined.
        summarize: How many elements of each tensor a graph shows.

    Returns:
        The ops on which what follows must depend; none if nothing is left to do.

    Raises:
        tf.errors.InvalidArgumentError: If the condition is False, eagerly or when the graph runs.
    """
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(condition, message, summarize)]
    if not bool(condition):
        parts = (str(part.numpy()) if tf.is_tensor(part) else str(part) for part in message)
        raise tf.errors.InvalidArgumentError(None, None, " ".join(parts))
    return []
