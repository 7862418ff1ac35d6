"""Gradients of a loss over the vectors of a whole batch, whose texts are encoded part by part.

The vectors are computed twice: first without a tape, for the gradient of the loss with respect to
them; then again with one, part by part. Memory is that of a part and of the vectors, and the
numbers are those of the whole batch: both times dropout draws the same masks.

Reference: Gao et al. 2021 (GradCache, arXiv 2101.06983).
"""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from bert_tf.inputs.token_inputs import num_rows
from bert_tf.training.batch_parts import BatchParts, accumulated_gradients
from bert_tf.training.pipelined_step import seed_states


def cached_gradients(
    model: keras.Model,
    x: dict[str, tf.Tensor],
    mini_batch_size: int,
    losses: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    variables: Sequence[keras.Variable],
) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
    """Returns the loss of a batch and its gradients.

    Args:
        model: A function of token dictionaries to vectors float32 `[B, …]`.
        x: The token dictionary of the batch.
        mini_batch_size: The maximum number of examples that are encoded at once.
        losses: A function of the vectors of the batch: the loss, and the loss to differentiate.
        variables: The variables to differentiate with respect to.

    Returns:
        The loss, and the gradients, None for an unused variable.
    """
    states = seed_states(model)
    before = [tf.convert_to_tensor(state) for state in states]
    count = -(-num_rows(x) // mini_batch_size)
    vectors = _encoded(model, BatchParts((x,), count))
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        loss, scaled = losses(vectors)
    # The loss may have variables of its own.
    vector_gradients, *direct = tape.gradient(scaled, [vectors, *variables])
    for state, value in zip(states, before):
        state.assign(value)
    parts = BatchParts((x, vector_gradients), count)

    def gradients_of(part):
        tokens, upstream = part
        with tf.GradientTape() as tape:
            vectors = model(tokens, training=True)
        return 0.0, tape.gradient(vectors, variables, upstream)

    _, gradients = accumulated_gradients(parts, gradients_of, variables)
    return loss, [
        only if gradient is None else gradient if only is None else gradient + only
        for gradient, only in zip(gradients, direct)
    ]


def _encoded(model, parts):
    """Returns the vectors of all parts, `[B, …]`, without what their gradient would need."""

    shapes = []

    def body(index, vectors):
        (tokens,) = parts[index]
        part = model(tokens, training=True)
        shapes.append(part.shape[1:])
        return index + 1, vectors.write(index, part)

    # At least 1: a batch without rows, the last one of a replica, is a part without.
    count = max(parts.count, 1) if parts.is_static else tf.maximum(parts.count, 1)
    vectors = tf.TensorArray(tf.float32, count, infer_shape=False)
    _, vectors = tf.while_loop(
        lambda index, _: index < count, body, (0, vectors), parallel_iterations=1
    )
    return tf.ensure_shape(vectors.concat(), [None, *shapes[0]])
