"""The arguments of the attention ops, checked.

Glossary: `R` tokens of all sequences, `N` heads, `D` head size, `M` the largest distance of query
and key with a bias of its own.
"""

from __future__ import annotations

import tensorflow as tf

from bert_tf.errors import require
from bert_tf.ops.arguments import float_tensors
from bert_tf.ops.padded_attention import PaddedAttention, PaddedRows

_NO_WINDOW = -1  # the native ops' window_size for None


class PackedAttention:
    """The arguments of an op for self-attention; `varlen_attention` describes them.

    Attributes:
        mask: The arguments that say which tokens attend to which.
        distance_biases: The distance bias in float32 as a list, which is empty without one.

    Raises:
        TypeError: If the dtype of `qkv`, `row_splits` or `distance_bias` is not supported.
        ValueError: If shapes do not match, `window_size` or `num_global_tokens` is negative, or
            there are global tokens without a window.
    """

    def __init__(self, qkv, row_splits, causal, window_size, num_global_tokens, distance_bias=None):
        self.qkv, bias = float_tensors(qkv=qkv, distance_bias=distance_bias)
        if not self.qkv.shape.is_compatible_with([None, 3, None, None]):
            raise ValueError(
                "`qkv` must have shape [tokens, 3, heads, head size]. "
                f"Received: qkv.shape={self.qkv.shape}"
            )
        self.row_splits = _checked_row_splits("row_splits", row_splits)
        sizes = {"window_size": window_size, "num_global_tokens": num_global_tokens}
        rule = "must be at least 0, or None for no window"
        require(window_size is None or window_size >= 0, rule, ValueError, **sizes)
        fits = num_global_tokens >= 0
        require(fits, "must be at least 0", ValueError, num_global_tokens=num_global_tokens)
        rule = "must be given with `num_global_tokens`: without a window, all tokens are global"
        require(window_size is not None or not num_global_tokens, rule, ValueError, **sizes)
        self.mask = {"causal": bool(causal), **sizes}
        self.distance_biases = []
        if bias is not None:
            _check_distance_bias(bias, self.qkv)
            self.distance_biases = [tf.cast(bias, tf.float32)]

    def attributes(self) -> dict:
        """Returns the attributes of the native op that say which rows attend to which."""
        has_window = self.mask["window_size"] is not None
        return self.mask if has_window else {**self.mask, "window_size": _NO_WINDOW}

    def padded(self) -> PaddedAttention:
        """Returns the sequences as a padded batch, for a reference implementation."""
        qkv = tf.ensure_shape(self.qkv, [None, 3, None, None])
        rows = PaddedRows(qkv, self.row_splits, "row_splits", "qkv")
        parts = tf.unstack(rows.padded(), num=3, axis=2)  # each [B, T, N, D]
        bias = next(iter(self.distance_biases), None)
        return PaddedAttention(rows, rows, *parts, **self.mask, distance_bias=bias)


class PackedCrossAttention:
    """The arguments of `varlen_cross_attention`, which describes them.

    Raises:
        TypeError: If the dtype of a tensor is not supported, or those of `query` and `key_value`
            differ.
        ValueError: If shapes do not match.
    """

    def __init__(self, query, key_value, query_row_splits, key_row_splits, causal):
        query, key_value = float_tensors(query=query, key_value=key_value)
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
        query_row_splits = _checked_row_splits("query_row_splits", query_row_splits)
        key_row_splits = _checked_row_splits("key_row_splits", key_row_splits)
        if not key_row_splits.shape.is_compatible_with(query_row_splits.shape):
            raise ValueError(
                "`key_row_splits` must have the length of `query_row_splits`. Received: "
                f"key_row_splits.shape={key_row_splits.shape}, "
                f"query_row_splits.shape={query_row_splits.shape}"
            )
        self.query, self.key_value, self.causal = query, key_value, causal
        self.query_row_splits, self.key_row_splits = query_row_splits, key_row_splits

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


def _check_distance_bias(bias: tf.Tensor, qkv: tf.Tensor) -> None:
    heads, distances = qkv.shape.with_rank(4)[2], bias.shape[-1] if bias.shape.rank else None
    is_odd = distances is None or distances % 2 == 1
    if not (bias.shape.is_compatible_with([heads, None]) and is_odd):
        raise ValueError(
            f"`distance_bias` must have shape [{heads or 'heads'}, an odd number of distances]. "
            f"Received: distance_bias.shape={bias.shape}, qkv.shape={qkv.shape}"
        )


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
