"""The way from packed rows to a padded batch and back, for the reference implementations.

Glossary: `B` sequences, `T` length of the longest sequence, `R` tokens of all sequences, `N` heads,
`D` head size; `Tq` and `Tk` are the `T` of queries and keys.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import tensorflow as tf


class PaddedRows:
    """The places of packed rows in a padded batch.

    Args:
        packed: `[R, ..., N, D]`, the rows, of known rank.
        row_splits: `[B + 1]`. They are checked when the op runs.
        name: The name of the argument with the row splits, for errors.
        of: The name of the argument with the rows.

    Attributes:
        lengths: int64 `[B]`.
        longest: int64 scalar, T.
        rows: int64 `[B, T]`, the packed rows; 0 for padding.
        is_token: bool `[B, T]`.
    """

    def __init__(self, packed: tf.Tensor, row_splits: tf.Tensor, name: str, of: str):
        num_rows = tf.shape(packed, out_type=tf.int64)[0]  # R
        row_splits = tf.cast(row_splits, tf.int64)
        checks = [
            tf.debugging.assert_equal(
                row_splits[0], tf.constant(0, tf.int64), f"`{name}` must begin with 0."
            ),
            tf.debugging.assert_non_negative(
                row_splits[1:] - row_splits[:-1], f"`{name}` must never decrease."
            ),
            tf.debugging.assert_equal(
                row_splits[-1], num_rows, f"`{name}` must end with the number of rows of `{of}`."
            ),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):
            self._row_splits = tf.identity(row_splits)
        self._packed = packed
        starts = self._row_splits[:-1]  # [B]
        self.lengths = self._row_splits[1:] - starts
        self.longest = tf.reduce_max(tf.concat([self.lengths, [0]], axis=0))
        positions = tf.range(self.longest)  # [T]
        self.is_token = positions < self.lengths[:, tf.newaxis]
        self.rows = tf.where(self.is_token, starts[:, tf.newaxis] + positions, 0)

    def padded(self) -> tf.Tensor:
        """Returns the rows as `[B, T, ...]`, float32, with zeros for padding."""
        padded = tf.cast(tf.gather(self._packed, self.rows), tf.float32)  # [B, T, ...]
        is_token = self.is_token[(..., *[tf.newaxis] * (self._packed.shape.rank - 1))]
        return tf.where(is_token, padded, 0.0)

    def pack(self, padded: tf.Tensor) -> tf.Tensor:
        """Packs `[B, T, N, D]` -> `[R, N, D]` with the dtype of the rows."""
        # Row r is in the first sequence that ends after r.
        flat = tf.reshape(padded, tf.concat([[-1], tf.shape(padded)[2:]], axis=0))  # [B T, N, D]
        row = tf.range(tf.shape(self._packed, out_type=tf.int64)[0])
        sequence = tf.searchsorted(self._row_splits[1:], row, side="right", out_type=tf.int64)
        place = sequence * self.longest + row - tf.gather(self._row_splits, sequence)
        output = tf.ensure_shape(
            tf.gather(flat, place), [self._packed.shape[0], *self._packed.shape[-2:]]
        )
        return tf.cast(output, self._packed.dtype)


@dataclasses.dataclass(frozen=True)
class PaddedAttention:
    """The queries, keys and values of a padded batch, float32, and who attends to whom.

    Attributes:
        queries, keys: The places of the packed queries, and of the packed keys and values. One
            object for both is self-attention.
        query: `[B, Tq, N, D]`, zeros for padding.
        key, value: `[B, Tk, N, D]`, zeros for padding.
        causal, window_size, num_global_tokens: See `varlen_attention`.
        distance_bias: The same, in float32.
    """

    queries: PaddedRows
    keys: PaddedRows
    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    causal: bool
    window_size: int | None = None
    num_global_tokens: int = 0
    distance_bias: tf.Tensor | None = None

    @property
    def score_scale(self):
        """1 / sqrt(D)."""
        head_size = self.query.shape[3]
        if head_size is None:
            return tf.math.rsqrt(tf.cast(tf.shape(self.query)[3], tf.float32))
        return 1.0 / math.sqrt(head_size)

    @functools.cached_property
    def _positions(self) -> tf.Tensor:
        """The positions of the queries for the mask: int64 `[Tq]`, or `[B, Tq]` in cross-attention.

        Queries and keys are aligned at their ends, so a query of a long sequence may be negative.
        """
        positions = tf.range(self.queries.longest)
        if self.queries is self.keys:
            return positions
        return positions + (self.keys.lengths - self.queries.lengths)[:, tf.newaxis]

    @functools.cached_property
    def attends(self) -> tf.Tensor:
        """Whether it is a query, and not padding, that attends to any key: bool `[B, Tq]`."""
        if self.queries is self.keys:
            return self.queries.is_token
        attends = self.queries.is_token & (self.keys.lengths > 0)[:, tf.newaxis]
        return attends & (self._positions >= 0) if self.causal else attends

    @functools.cached_property
    def sees(self) -> tf.Tensor:
        """Whether the query (row) attends to the key (column): bool `[B, 1, Tq, Tk]`."""
        query, key = self._positions[..., tf.newaxis], tf.range(self.keys.longest)
        sees = tf.ones_like(query == key)  # [Tq, Tk] or [B, Tq, Tk]
        if self.window_size is not None:
            sees = tf.abs(query - key) <= self.window_size
            sees |= (query < self.num_global_tokens) | (key < self.num_global_tokens)
        if self.causal:
            sees &= key <= query
        sees &= self.keys.is_token[:, tf.newaxis, :]  # [B, Tq, Tk]
        # Any other row attends to everything, so that its softmax is finite.
        sees |= ~self.attends[:, :, tf.newaxis]
        return sees[:, tf.newaxis]

    def with_distance_bias(self, scores: tf.Tensor) -> tf.Tensor:
        """Adds the biases of the distances to scores of self-attention, `[B, N, T, T]`."""
        if self.distance_bias is None:
            return scores
        positions = tf.range(self.queries.longest)
        distances = positions[:, tf.newaxis] - positions  # [T, T]
        return scores + biases_of_distances(self.distance_bias, distances)

    def pack(self, output: tf.Tensor) -> tf.Tensor:
        """Packs `[B, Tq, N, D]` -> `[Rq, N, D]` with the dtype of the queries."""
        return self.queries.pack(output)


def biases_of_distances(distance_bias: tf.Tensor, distances: tf.Tensor) -> tf.Tensor:
    """Returns the biases of distances of query and key.

    Args:
        distance_bias: `[N, 2 M + 1]`, for the distances from -M to M; farther ones have the last
            numbers.
        distances: Integers `[..., T, T]`, position of the query minus that of the key.

    Returns:
        `[..., N, T, T]`.
    """
    reach = tf.shape(distance_bias, out_type=distances.dtype)[1] // 2  # M
    places = tf.clip_by_value(distances, -reach, reach) + reach
    biases = tf.gather(distance_bias, places, axis=1)  # [N, ..., T, T]
    if distances.shape.rank == 2:
        return biases
    return tf.transpose(biases, [1, 0, 2, 3])  # -> [B, N, T, T]
