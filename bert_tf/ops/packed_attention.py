"""What the attention ops have in common: their arguments, and the way to a padded batch and back.

Glossary: `B` sequences, `T` length of the longest sequence, `R` tokens of all sequences, `N` heads,
`D` head size.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import tensorflow as tf

from bert_tf.ops.arguments import float_tensors

_NO_WINDOW = -1  # the native ops' window_size for None


@dataclasses.dataclass(frozen=True)
class PackedAttention:
    """The arguments of an attention op, checked; `varlen_attention` describes them.

    Raises:
        TypeError: If the dtype of `qkv` or `row_splits` is not supported.
        ValueError: If shapes do not match, `window_size` or `num_global_tokens` is negative, or
            there are global tokens without a window.
    """

    qkv: tf.Tensor
    row_splits: tf.Tensor
    causal: bool
    window_size: int | None
    num_global_tokens: int

    def __post_init__(self):
        (qkv,) = float_tensors(qkv=self.qkv)
        if not qkv.shape.is_compatible_with([None, 3, None, None]):
            raise ValueError(
                "`qkv` must have shape [tokens, 3, heads, head size]. "
                f"Received: qkv.shape={qkv.shape}"
            )
        row_splits = tf.convert_to_tensor(self.row_splits)
        if row_splits.dtype not in (tf.int32, tf.int64):
            raise TypeError(
                "`row_splits` must have dtype int32 or int64. "
                f"Received: row_splits.dtype={row_splits.dtype.name}"
            )
        if not row_splits.shape.is_compatible_with([None]) or row_splits.shape == [0]:
            raise ValueError(
                "`row_splits` must have shape [sequences + 1]. "
                f"Received: row_splits.shape={row_splits.shape}"
            )
        if self.window_size is not None and self.window_size < 0:
            raise ValueError(
                "`window_size` must be at least 0, or None for no window. "
                f"Received: window_size={self.window_size}"
            )
        if self.num_global_tokens < 0:
            raise ValueError(
                "`num_global_tokens` must be at least 0. "
                f"Received: num_global_tokens={self.num_global_tokens}"
            )
        if self.num_global_tokens > 0 and self.window_size is None:
            raise ValueError(
                "`window_size` must be given with `num_global_tokens`: without a window, all "
                f"tokens are global. Received: num_global_tokens={self.num_global_tokens}, "
                "window_size=None"
            )
        object.__setattr__(self, "qkv", qkv)
        object.__setattr__(self, "row_splits", row_splits)

    def attributes(self) -> dict:
        """Returns the attributes of the native op that say which rows attend to which."""
        return {
            "causal": bool(self.causal),
            "window_size": _NO_WINDOW if self.window_size is None else int(self.window_size),
            "num_global_tokens": int(self.num_global_tokens),
        }

    def padded(self) -> PaddedSequences:
        """Returns the sequences as a padded batch, for a reference implementation."""
        num_rows = tf.shape(self.qkv, out_type=tf.int64)[0]  # R
        row_splits = tf.cast(self.row_splits, tf.int64)
        checks = [
            tf.debugging.assert_equal(
                row_splits[0], tf.constant(0, tf.int64), "`row_splits` must begin with 0."
            ),
            tf.debugging.assert_non_negative(
                row_splits[1:] - row_splits[:-1], "`row_splits` must never decrease."
            ),
            tf.debugging.assert_equal(
                row_splits[-1], num_rows, "`row_splits` must end with the number of rows of `qkv`."
            ),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):
            return PaddedSequences(self, tf.identity(row_splits))


class PaddedSequences:
    """The queries, keys and values of a padded batch, float32, and who attends to whom.

    Attributes:
        query, key, value: `[B, T, N, D]`, zeros for padding.
        lengths: int64 `[B]`.
        rows: int64 `[B, T]`, the packed rows; 0 for padding.
        is_token: bool `[B, T]`.
        score_scale: 1 / sqrt(D).
    """

    def __init__(self, attention: PackedAttention, row_splits: tf.Tensor):
        self._attention = attention
        self._row_splits = row_splits
        starts, self.lengths = row_splits[:-1], row_splits[1:] - row_splits[:-1]  # [B]
        self._longest = tf.reduce_max(tf.concat([self.lengths, [0]], axis=0))  # T
        positions = tf.range(self._longest)  # [T]
        self.is_token = positions < self.lengths[:, tf.newaxis]
        self.rows = tf.where(self.is_token, starts[:, tf.newaxis] + positions, 0)
        qkv = attention.qkv
        padded = tf.cast(tf.gather(qkv, self.rows), tf.float32)  # [R, 3, N, D] -> [B, T, 3, N, D]
        padded = tf.where(self.is_token[:, :, tf.newaxis, tf.newaxis, tf.newaxis], padded, 0.0)
        self.query, self.key, self.value = tf.unstack(padded, num=3, axis=2)  # each [B, T, N, D]
        if qkv.shape[3] is None:
            self.score_scale = tf.math.rsqrt(tf.cast(tf.shape(qkv)[3], tf.float32))
        else:
            self.score_scale = 1.0 / math.sqrt(qkv.shape[3])

    @functools.cached_property
    def sees(self) -> tf.Tensor:
        """Whether the query (row) attends to the key (column): bool `[B, 1, T, T]`."""
        attention = self._attention
        positions = tf.range(self._longest)
        query, key = positions[:, tf.newaxis], positions[tf.newaxis, :]
        sees = tf.ones_like(query == key)  # [T, T]
        if attention.window_size is not None:
            sees = tf.abs(query - key) <= attention.window_size
            sees |= (query < attention.num_global_tokens) | (key < attention.num_global_tokens)
        if attention.causal:
            sees &= key <= query
        sees &= self.is_token[:, tf.newaxis, :]  # [B, T, T]
        # A padded query attends to everything, so that its softmax is finite; `pack` drops it.
        sees |= ~self.is_token[:, :, tf.newaxis]
        return sees[:, tf.newaxis]

    def pack(self, output: tf.Tensor) -> tf.Tensor:
        """`[B, T, N, D]` -> `[R, N, D]` with the dtype of `qkv`."""
        qkv, row_splits = self._attention.qkv, self._row_splits
        # Row r is in the first sequence that ends after r.
        flat = tf.reshape(output, tf.concat([[-1], tf.shape(qkv)[2:]], axis=0))  # [B T, N, D]
        row = tf.range(tf.shape(qkv, out_type=tf.int64)[0])
        sequence = tf.searchsorted(row_splits[1:], row, side="right", out_type=tf.int64)
        place = sequence * self._longest + row - tf.gather(row_splits, sequence)
        output = tf.ensure_shape(tf.gather(flat, place), [qkv.shape[0], qkv.shape[2], qkv.shape[3]])
        return tf.cast(output, qkv.dtype)
