"""The arguments of the attention ops, checked.

Glossary: `R` tokens of all sequences, `N` heads, `D` head size, `M` the largest distance of query
and key with a bias of its own.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from bert_tf.ops.arguments import float_tensors
from bert_tf.ops.padded_attention import PaddedAttention, PaddedRows

_NO_WINDOW = -1  # the native ops' window_size for None


@dataclasses.dataclass(frozen=True)
class PackedAttention:
    """The arguments of an op for self-attention; `varlen_attention` describes them.

    Raises:
        TypeError: If the dtype of `qkv`, `row_splits` or `distance_bias` is not supported.
        ValueError: If shapes do not match, `window_size` or `num_global_tokens` is negative, or
            there are global tokens without a window.
    """

    qkv: tf.Tensor
    row_splits: tf.Tensor
    causal: bool
    window_size: int | None
    num_global_tokens: int
    distance_bias: tf.Tensor | None = None

    def __post_init__(self):
        (qkv,) = float_tensors(qkv=self.qkv)
        if not qkv.shape.is_compatible_with([None, 3, None, None]):
            raise ValueError(
                "`qkv` must have shape [tokens, 3, heads, head size]. "
                f"Received: qkv.shape={qkv.shape}"
            )
        row_splits = _checked_row_splits("row_splits", self.row_splits)
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
        if self.distance_bias is not None:
            bias = _checked_distance_bias(self.distance_bias, qkv)
            object.__setattr__(self, "distance_bias", bias)
        object.__setattr__(self, "qkv", qkv)
        object.__setattr__(self, "row_splits", row_splits)

    def attributes(self) -> dict:
        """Returns the attributes of the native op that say which rows attend to which."""
        return {
            "causal": bool(self.causal),
            "window_size": _NO_WINDOW if self.window_size is None else int(self.window_size),
            "num_global_tokens": int(self.num_global_tokens),
        }

    def distance_biases(self) -> list[tf.Tensor]:
        """Returns the distance bias, if there is one, as a list in float32, for the native op."""
        return [] if self.distance_bias is None else [tf.cast(self.distance_bias, tf.float32)]

    def padded(self) -> PaddedAttention:
        """Returns the sequences as a padded batch, for a reference implementation."""
        qkv = tf.ensure_shape(self.qkv, [None, 3, None, None])
        rows = PaddedRows(qkv, self.row_splits, "row_splits", "qkv")
        query, key, value = tf.unstack(rows.padded(), num=3, axis=2)  # each [B, T, N, D]
        return PaddedAttention(
            rows,
            rows,
            query,
            key,
            value,
            self.causal,
            self.window_size,
            self.num_global_tokens,
            *self.distance_biases(),
        )


@dataclasses.dataclass(frozen=True)
class PackedCrossAttention:
    """The arguments of `varlen_cross_attention`, which describes them.

    Raises:
        TypeError: If the dtype of a tensor is not supported, or those of `query` and `key_value`
            differ.
        ValueError: If shapes do not match.
    """

    query: tf.Tensor
    key_value: tf.Tensor
    query_row_splits: tf.Tensor
    key_row_splits: tf.Tensor
    causal: bool

    def __post_init__(self):
        query, key_value = float_tensors(query=self.query, key_value=self.key_value)
        if not query.shape.is_compatible_with([None, None, None]):
            raise ValueError(
                "`query` must have shape [tokens, heads, head size]. "
                f"Received: query.shape={query.shape}"
            )
        heads, head_size = (None, None) if query.shape.rank is None else query.shape[1:]
        if not key_value.shape.is_compatible_with([None, 2, heads, head_size]):
            raise ValueError(
                f"`key_value` must have shape [tokens, 2, {heads or 'heads'}, "
                f"{head_size or 'head size'}], with the heads and the head size of `query`. "
                f"Received: key_value.shape={key_value.shape}, query.shape={query.shape}"
            )
        query_row_splits = _checked_row_splits("query_row_splits", self.query_row_splits)
        key_row_splits = _checked_row_splits("key_row_splits", self.key_row_splits)
        if not key_row_splits.shape.is_compatible_with(query_row_splits.shape):
            raise ValueError(
                "`key_row_splits` must have the length of `query_row_splits`. Received: "
                f"key_row_splits.shape={key_row_splits.shape}, "
                f"query_row_splits.shape={query_row_splits.shape}"
            )
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "key_value", key_value)
        object.__setattr__(self, "query_row_splits", query_row_splits)
        object.__setattr__(self, "key_row_splits", key_row_splits)

    def padded(self) -> PaddedAttention:
        """Returns the sequences as a padded batch, for a reference implementation."""
        check = tf.debugging.assert_equal(
            tf.shape(self.key_row_splits),
            tf.shape(self.query_row_splits),
            "`key_row_splits` must have the length of `query_row_splits`.",
        )
        with tf.control_dependencies([] if check is None else [check]):
            key_value = tf.ensure_shape(self.key_value, [None, 2, None, None])
        query = tf.ensure_shape(self.query, [None, None, None])
        queries = PaddedRows(query, self.query_row_splits, "query_row_splits", "query")
        keys = PaddedRows(key_value, self.key_row_splits, "key_row_splits", "key_value")
        key, value = tf.unstack(keys.padded(), num=2, axis=2)  # each [B, Tk, N, D]
        return PaddedAttention(queries, keys, queries.padded(), key, value, self.causal)


def multiplies_bfloat16(tokens: tf.Tensor, compute_dtype: str | None) -> bool:
    """Returns whether matrix products of the tokens are computed in bfloat16.

    Raises:
        ValueError: If `compute_dtype` is neither None nor "bfloat16".
    """
    if compute_dtype not in (None, "bfloat16"):
        raise ValueError(
            '`compute_dtype` must be "bfloat16", or None for the dtype of the tokens. '
            f"Received: compute_dtype={compute_dtype!r}"
        )
    return "bfloat16" in (compute_dtype, tokens.dtype.name)


def _checked_distance_bias(bias, qkv: tf.Tensor) -> tf.Tensor:
    _, bias = float_tensors(qkv=qkv, distance_bias=bias)
    heads = None if qkv.shape.rank is None else qkv.shape[2]
    distances = bias.shape[1] if bias.shape.rank == 2 else None
    is_odd = distances is None or distances % 2 == 1
    if not (bias.shape.is_compatible_with([heads, None]) and is_odd):
        raise ValueError(
            f"`distance_bias` must have shape [{heads or 'heads'}, an odd number of distances]. "
            f"Received: distance_bias.shape={bias.shape}, qkv.shape={qkv.shape}"
        )
    return bias


def _checked_row_splits(name: str, row_splits) -> tf.Tensor:
    row_splits = tf.convert_to_tensor(row_splits)
    if row_splits.dtype not in (tf.int32, tf.int64):
        raise TypeError(
            f"`{name}` must have dtype int32 or int64. "
            f"Received: {name}.dtype={row_splits.dtype.name}"
        )
    if not row_splits.shape.is_compatible_with([None]) or row_splits.shape == [0]:
        raise ValueError(
            f"`{name}` must have shape [sequences + 1]. Received: {name}.shape={row_splits.shape}"
        )
    return row_splits
