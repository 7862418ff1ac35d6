"""The keys and values of the tokens that were decoded, for attention in a step of `generate`.

Glossary: `n` sequences, `S` tokens that the cache has space for, `N` heads, `D` head size.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.layers.token_layout import needs_static_shapes

BLOCK = 32  # The cache grows by this number of tokens.


class FilledKeyValues(NamedTuple):
    """The keys and values of the tokens so far, followed by unfilled space."""

    keys: tf.Tensor  # [n, S, N, D]
    values: tf.Tensor  # [n, S, N, D]
    mask: tf.Tensor  # whether a token is filled, bool [S]


class KeyValueCache(NamedTuple):
    """The keys and values of one attention layer for the tokens up to the current position.

    It is a nest of one tensor whose first axis is the sequences, so it can be (part of) the state
    of a step of `generate`. It grows in blocks, so the cost of a step depends on the position and
    not on the maximum length. Where XLA compiles the step (in
    `bert_tf.layers.token_layout.static_shapes`), it has the maximum length from the start.

    Attributes:
        key_values: `[n, S, 2, N, D]`.

    Example:
        >>> cache = bert_tf.generation.KeyValueCache.empty(
        ...     num_rows=3, max_length=64, num_heads=4, head_size=8
        ... )
        >>> cache = cache.append(0, tf.ones([3, 4, 8]), tf.ones([3, 4, 8]))
        >>> filled = cache.filled(0)
        >>> filled.keys.shape, int(tf.reduce_sum(tf.cast(filled.mask, tf.int32)))
        (TensorShape([3, 32, 4, 8]), 1)
    """

    key_values: tf.Tensor

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

        Args:
            num_rows: n: for the state that `generate` takes, B.
            max_length: The maximum number of tokens, for XLA.
            num_heads: N.
            head_size: D.
            dtype: The dtype of keys and values.
        """
        length = max_length
        if not needs_static_shapes():
            # A constant would become part of the static shape, and a loop could not change it.
            length = tf.raw_ops.PlaceholderWithDefault(input=BLOCK, shape=[])
        return cls(tf.zeros([num_rows, length, 2, num_heads, head_size], dtype))

    def append(
        self, position: int | tf.Tensor, key: tf.Tensor, value: tf.Tensor
    ) -> "KeyValueCache":
        """Returns the cache with the key and the value of the token at `position`.

        Args:
            position: A scalar int32, one more than in the call before.
            key: `[n, N, D]`.
            value: `[n, N, D]`.
        """
        key_values = self.key_values
        if not needs_static_shapes():
            missing = tf.where(position < tf.shape(key_values)[1], 0, BLOCK)
            key_values = tf.pad(key_values, [[0, 0], [0, missing], [0, 0], [0, 0], [0, 0]])
            rows, _, *shape = self.key_values.shape
            key_values = tf.ensure_shape(key_values, [rows, None, *shape])  # [n, S, 2, N, D]
        rows = tf.range(tf.shape(key_values)[0])
        places = tf.stack([rows, tf.fill(tf.shape(rows), position)], axis=1)  # [n, 2]
        new = tf.stack([key, value], axis=1)  # [n, 2, N, D]
        return KeyValueCache(tf.tensor_scatter_nd_update(key_values, places, new))

    def filled(self, position: int | tf.Tensor) -> FilledKeyValues:
        """Returns the keys and values with the mask of the tokens up to `position`, which is int32.

        Returns:
            The `FilledKeyValues`.
        """
        keys, values = tf.unstack(self.key_values, axis=2)  # 2 of [n, S, N, D]
        return FilledKeyValues(keys, values, tf.range(tf.shape(keys)[1]) <= position)
