"""The cached keys and values of decoded tokens, to which the next token attends.

Glossary: `n` sequences, `S` tokens that the cache has space for, `N` heads, `D` head size.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.ops.native import needs_static_shapes

BLOCK_LENGTH = 8  # The cache grows by this number of tokens.


class KeyValueCache(NamedTuple):
    """The keys and values of one attention layer for the tokens up to the current position.

    It is a nest of tensors whose first axis is the sequences, so it can be (part of) the state of a
    step of `bert_tf.generation.generate`. It grows in blocks, so the cost of a step depends on the
    position and not on the maximum length. Where XLA compiles the step (in
    `static_shapes`), it has the maximum length from the start.

    Attributes:
        keys: `[n, N, S, D]`.
        values: `[n, N, S, D]`.

    Example:
        >>> cache = bert_tf.layers.KeyValueCache.empty(
        ...     num_rows=3, max_length=64, num_heads=4, head_size=8
        ... )
        >>> cache = cache.append(0, tf.ones([3, 4, 8]), tf.ones([3, 4, 8]))
        >>> cache.keys.shape, int(tf.reduce_sum(tf.cast(cache.mask(0), tf.int32)))
        (TensorShape([3, 4, 8, 8]), 1)
    """

    keys: tf.Tensor
    values: tf.Tensor

    @classmethod
    def empty(
        cls,
        num_rows: int | tf.Tensor,
        max_length: int,
        num_heads: int,
        head_size: int,
        dtype: str | tf.DType = "float32",
    ) -> "KeyValueCache":
        """Returns a cache for the positions 0 to `max_length - 1` without keys and values.

        `num_rows` is n, the number of sequences; B in the state that `generate` takes. `max_length`
        counts only for XLA.
        """
        length = max_length
        if not needs_static_shapes():
            # A constant would become part of the static shape, and a loop could not change it.
            length = tf.raw_ops.PlaceholderWithDefault(input=BLOCK_LENGTH, shape=[])
        zeros = tf.zeros([num_rows, num_heads, length, head_size], dtype)
        return cls(zeros, zeros)

    def append(
        self, position: int | tf.Tensor, key: tf.Tensor, value: tf.Tensor
    ) -> "KeyValueCache":
        """Returns the cache with the key and the value `[n, N, D]` of the token at `position`.

        That is a scalar int32, one more than in the call before.
        """
        return KeyValueCache(
            _written(self.keys, position, key), _written(self.values, position, value)
        )

    def mask(self, position: int | tf.Tensor) -> tf.Tensor:
        """Returns which tokens are up to `position`, a scalar int32: bool `[S]`."""
        return tf.range(tf.shape(self.keys)[2]) <= position


def _written(cache, position, token):
    """Returns the keys, or the values, with those of a token `[n, N, D]`, and space for it."""
    shape = cache.shape
    if not needs_static_shapes():
        missing = tf.where(position < tf.shape(cache)[2], 0, BLOCK_LENGTH)
        cache = tf.pad(cache, [[0, 0], [0, 0], [0, missing], [0, 0]])
        cache = tf.ensure_shape(cache, [*shape[:2], None, shape[3]])  # [n, N, S, D]
    rows, heads = tf.meshgrid(*map(tf.range, tf.unstack(tf.shape(token)[:2])), indexing="ij")
    places = tf.stack([rows, heads, tf.fill(tf.shape(rows), position)], axis=2)  # [n, N, 3]
    return tf.tensor_scatter_nd_update(cache, places, token)
