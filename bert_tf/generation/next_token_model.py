"""The model as decoding sees it: one step from the last tokens to the logits of the next."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# (token_ids int32 [n], position scalar int32, state, memory) -> (logits [n, V], state)
DecodingStep = Callable[[tf.Tensor, tf.Tensor, Any, Any], tuple[tf.Tensor, Any]]


def next_logits(
    step: DecodingStep,
    token_ids: tf.Tensor,
    position: tf.Tensor,
    state: Any,
    memory: Any,
    vocab_size: int,
) -> tuple[tf.Tensor, Any]:
    """Calls the step with the tokens at `position`.

    Args:
        step: The model.
        token_ids: The sequences with their start tokens, int32 `[n, S]`.
        position: A scalar int32.
        state: The state before the step.
        memory: What else the step takes.
        vocab_size: V.

    Returns:
        The logits float32 `[n, V]` and the state after the step, in a graph with the same static
        shapes as before, which a loop requires.
    """
    logits, new_state = step(tf.gather(token_ids, position, axis=1), position, state, memory)
    tf.nest.assert_same_structure(state, new_state)
    if not tf.executing_eagerly():
        new_state = tf.nest.map_structure(
            lambda old, new: tf.ensure_shape(new, old.shape), state, new_state
        )
    logits = tf.ensure_shape(tf.cast(logits, tf.float32), [token_ids.shape[0], vocab_size])
    return logits, new_state


def write_tokens(token_ids: tf.Tensor, position: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns `token_ids`, `[..., S]`, with `values`, `[...]`, at `position`."""
    is_here = tf.range(token_ids.shape[-1]) == position  # [S]
    return tf.where(is_here, values[..., tf.newaxis], token_ids)
