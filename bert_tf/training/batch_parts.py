"""The gradients of a batch that is computed part by part, to save memory.

`cached_gradients` is for losses over the vectors of a whole batch. The vectors are computed twice:
first without a tape, for the gradient of the loss with respect to them; then again with one, part
by part. Memory is that of a part and of the vectors, and the numbers are those of the whole batch:
both times dropout draws the same masks.

Reference: Gao et al. 2021 (GradCache, arXiv 2101.06983).
"""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from bert_tf.inputs.token_inputs import num_rows
from bert_tf.training.pipelined_step import seed_states


class BatchParts:
    """Cuts a batch into parts; with fewer rows than parts, there are as many parts as rows.

    Args:
        data: Inputs, labels and sample weights: nests of tensors `[B, ...]`, or None.
        count: The number of parts, an int or a scalar int32.

    Attributes:
        num_rows: B, an int where it is static.
        count: The number of parts that have rows, an int where B is static.
        is_static: Whether B is static.
    """

    def __init__(self, data, count: int | tf.Tensor):
        self.data = data
        self.num_rows = num_rows(data[0])
        self.is_static = not tf.is_tensor(self.num_rows)
        self.count = (min if self.is_static else tf.minimum)(count, self.num_rows)
        self._size = None  # of every part, where it is always the same
        if self.is_static and self.num_rows % max(self.count, 1) == 0:
            self._size = self.num_rows // max(self.count, 1)

    def __getitem__(self, index):
        """Returns the data of a part; an index of at least `count` gives no rows."""
        if self.is_static:
            count, last = max(self.count, 1), index + 1
        else:
            count = tf.maximum(self.count, 1)
            index, last = tf.minimum(index, count), tf.minimum(index + 1, count)
        start, end = index * self.num_rows // count, last * self.num_rows // count
        return tf.nest.map_structure(lambda values: self._rows(values, start, end), self.data)

    def _rows(self, values, start, end):
        if values is None:
            return None
        if self._size is None:
            return values[start:end]
        rest = [-1 if length is None else length for length in values.shape[1:]]  # -1: all
        return tf.slice(values, [start, *[0] * len(rest)], [self._size, *rest])


def accumulated_gradients(
    parts: BatchParts, gradients_of: Callable, variables: Sequence[keras.Variable]
) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
    """Returns the loss and the gradients of a batch, from one part after the other.

    `gradients_of` returns the loss and the gradients of the data of a part, which add up.
    """
    unused = set()

    def body(index, loss, gradients):
        part_loss, part_gradients = gradients_of(parts[index])
        unused.update(i for i, gradient in enumerate(part_gradients) if gradient is None)
        gradients = [
            total if gradient is None else total + tf.convert_to_tensor(gradient)
            for total, gradient in zip(gradients, part_gradients)
        ]
        return index + 1, loss + part_loss, gradients

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    _, loss, gradients = tf.while_loop(
        lambda index, *_: index < parts.count,
        body,
        (0, tf.zeros([]), zeros),
        parallel_iterations=1,
        maximum_iterations=parts.count,
    )
    return loss, [None if i in unused else gradient for i, gradient in enumerate(gradients)]


def cached_gradients(
    model: keras.Model,
    x: dict[str, tf.Tensor],
    mini_batch_size: int,
    losses: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    variables: Sequence[keras.Variable],
) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
    """Returns the loss of a batch and its gradients, None for an unused variable.

    `model` turns the token dictionary `x` into vectors float32 `[B, …]`, of at most
    `mini_batch_size` examples at once. `losses` returns, for the vectors of the batch, the loss and
    the loss to differentiate.
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
