"""Softmax attention over packed sequences of any length: no padding, no [T, T] tensor.

    out[r, n] = sum_j dropout(softmax_j(q[r, n] . k[j, n] / sqrt(D))) v[j, n]

over the tokens j of row r's own sequence that a mask lets it see. The native kernel
(`custom_ops/kernels/varlen_attention.h`) works tile by tile with an online softmax, as in
FlashAttention (Dao et al., arXiv 2205.14135), on tokens packed without padding, as in
ByteTransformer (Zhai et al., arXiv 2210.03052). Its gradient computes the probabilities again.
Window and global tokens are Longformer's (Beltagy et al., arXiv 2004.05150).

Glossary: B sequences, T length of a sequence (in the twin: of the longest), R tokens of all
sequences, N heads, D head size.
"""

from __future__ import annotations

import math

import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.arguments import check_dropout, float_tensors
from bert_tf.ops.differentiable_once import refuse_second_order
from bert_tf.ops.philox import (
    dropout_scale,
    dropout_threshold,
    philox_uniform_bits_streams,
    seed_tensor,
)

_NO_WINDOW = -1  # the native op's window_size for None


def varlen_attention(
    qkv: tf.Tensor,
    row_splits: tf.Tensor,
    dropout_rate: float = 0.0,
    seed: int | tf.Tensor | None = None,
    causal: bool = False,
    window_size: int | None = None,
    num_global_tokens: int = 0,
) -> tf.Tensor:
    """Multi-head attention of packed sequences, each token attending to its own sequence.

    A query at position i of its sequence sees the key at position j if (not causal or j <= i) and
    (there is no window, or |i - j| <= window_size, or i < num_global_tokens, or
    j < num_global_tokens). The arithmetic is float32 whatever the dtype, and results are the same
    bits for every number of threads. Memory beyond the tensors is linear in the sequence length.
    Differentiable once, in qkv; a gradient of the gradient needs the reference
    (`bert_tf.ops.backend("reference")`).

    Args:
        qkv: [R, 3, N, D] float32, bfloat16 or float16: queries, keys and values of all tokens,
            sequence after sequence, as one dense layer makes them.
        row_splits: [B + 1] int32 or int64, where each sequence begins, and R at the end;
            `tf.RaggedTensor.row_splits`. Sequences may be empty.
        dropout_rate: the share of the attention probabilities that is zeroed, in [0, 1); the rest
            is scaled by 1 / (1 - dropout_rate). Pass 0 when not training.
        seed: int or scalar int64 tensor, a new one for every call of a step; needed for dropout.
        causal: no token sees a later one.
        window_size: how far to either side a token sees; None for its whole sequence.
        num_global_tokens: the first tokens of a sequence, which see and are seen beyond the window.

    Returns:
        [R, N, D], the dtype of qkv.

    Raises:
        TypeError: another dtype of qkv or of row_splits.
        ValueError, tf.errors.InvalidArgumentError: shapes that do not fit; row_splits that do not
            begin with 0, end with R, or that decrease; a dropout rate outside [0, 1) or without a
            seed; a negative window_size or num_global_tokens; global tokens without a window.

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.varlen_attention(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])

    Reference: FlashAttention, arXiv 2205.14135; ByteTransformer, arXiv 2210.03052.
    """
    qkv, row_splits, dropout_rate, window_size, num_global_tokens = _checked(
        qkv, row_splits, dropout_rate, seed, window_size, num_global_tokens
    )
    if not native.use_native():
        return _reference(
            qkv, row_splits, dropout_rate, seed, causal, window_size, num_global_tokens
        )
    output, _ = native.library().bert_tf_varlen_attention(
        qkv,
        row_splits,
        seed_tensor(seed),
        dropout_rate=dropout_rate,
        causal=bool(causal),
        window_size=_NO_WINDOW if window_size is None else window_size,
        num_global_tokens=num_global_tokens,
    )
    return output


def varlen_attention_reference(
    qkv: tf.Tensor,
    row_splits: tf.Tensor,
    dropout_rate: float = 0.0,
    seed: int | tf.Tensor | None = None,
    causal: bool = False,
    window_size: int | None = None,
    num_global_tokens: int = 0,
) -> tf.Tensor:
    """`varlen_attention` in stock TensorFlow ops: on any device, twice differentiable.

    It pads to the longest sequence and holds [B, N, T, T] tensors. It draws the same dropout mask.
    A value that is not finite also reaches the rows of its sequence that a mask hides it from,
    because zero times it is NaN.

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.varlen_attention_reference(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])
    """
    qkv, row_splits, dropout_rate, window_size, num_global_tokens = _checked(
        qkv, row_splits, dropout_rate, seed, window_size, num_global_tokens
    )
    return _reference(qkv, row_splits, dropout_rate, seed, causal, window_size, num_global_tokens)


def _checked(qkv, row_splits, dropout_rate, seed, window_size, num_global_tokens) -> tuple:
    (qkv,) = float_tensors(qkv=qkv)
    if not qkv.shape.is_compatible_with([None, 3, None, None]):
        raise ValueError(
            "Expected qkv of shape [tokens, 3, heads, head size]. "
            f"Received: qkv of shape {qkv.shape}"
        )
    row_splits = tf.convert_to_tensor(row_splits)
    if row_splits.dtype not in (tf.int32, tf.int64):
        raise TypeError(
            "Expected row_splits of dtype int32 or int64. "
            f"Received: row_splits of dtype {row_splits.dtype.name}"
        )
    if not row_splits.shape.is_compatible_with([None]) or row_splits.shape == [0]:
        raise ValueError(
            "Expected row_splits of shape [sequences + 1]. "
            f"Received: row_splits of shape {row_splits.shape}"
        )
    if window_size is not None and window_size < 0:
        raise ValueError(
            f"Expected window_size >= 0, or None for no window. Received: window_size={window_size}"
        )
    if num_global_tokens < 0:
        raise ValueError(
            f"Expected num_global_tokens >= 0. Received: num_global_tokens={num_global_tokens}"
        )
    if num_global_tokens > 0 and window_size is None:
        raise ValueError(
            "Expected a window_size with num_global_tokens: without a window every token is global "
            f"already. Received: num_global_tokens={num_global_tokens}, window_size=None"
        )
    window_size = None if window_size is None else int(window_size)
    return qkv, row_splits, check_dropout(dropout_rate, seed), window_size, int(num_global_tokens)


def _reference(
    qkv, row_splits, dropout_rate, seed, causal, window_size, num_global_tokens
) -> tf.Tensor:
    num_rows = tf.shape(qkv, out_type=tf.int64)[0]  # R
    row_splits = tf.cast(row_splits, tf.int64)
    checks = [
        tf.debugging.assert_equal(
            row_splits[0], tf.constant(0, tf.int64), "Expected row_splits to begin with 0."
        ),
        tf.debugging.assert_non_negative(
            row_splits[1:] - row_splits[:-1], "Expected row_splits that never decrease."
        ),
        tf.debugging.assert_equal(
            row_splits[-1], num_rows, "Expected row_splits to end with the number of rows of qkv."
        ),
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        row_splits = tf.identity(row_splits)
    starts, lengths = row_splits[:-1], row_splits[1:] - row_splits[:-1]  # [B]
    longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))  # T
    positions = tf.range(longest)  # [T]
    is_token = positions < lengths[:, tf.newaxis]  # [B, T]
    rows = tf.where(is_token, starts[:, tf.newaxis] + positions, 0)  # [B, T], of the packed tokens

    padded = tf.cast(tf.gather(qkv, rows), tf.float32)  # [R, 3, N, D] -> [B, T, 3, N, D]
    padded = tf.where(is_token[:, :, tf.newaxis, tf.newaxis, tf.newaxis], padded, 0.0)
    query, key, value = tf.unstack(padded, num=3, axis=2)  # each [B, T, N, D]
    head_size = tf.cast(tf.shape(qkv)[3], tf.float32)
    query *= tf.math.rsqrt(head_size) if qkv.shape[3] is None else 1.0 / math.sqrt(qkv.shape[3])
    scores = tf.einsum("bqnd,bknd->bnqk", query, key)  # [B, N, T, T]

    sees = _sees(positions, causal, window_size, num_global_tokens)  # [T, T]
    sees &= is_token[:, tf.newaxis, :]  # [B, T, T]
    # A padded query sees everything, so that its softmax is a number; it is dropped below.
    sees |= ~is_token[:, :, tf.newaxis]
    scores = tf.where(sees[:, tf.newaxis], scores, -math.inf)
    probabilities = tf.nn.softmax(scores)
    if causal or window_size is not None:
        # Where a row's softmax is NaN (scores that overflow), hidden keys have no part in it.
        probabilities = tf.where(sees[:, tf.newaxis], probabilities, 0.0)

    num_heads = tf.shape(qkv, out_type=tf.int64)[2]
    if dropout_rate > 0.0:
        streams = rows[:, tf.newaxis] * num_heads + tf.range(num_heads)[:, tf.newaxis]  # [B, N, T]
        bits = philox_uniform_bits_streams(seed, tf.reshape(streams, [-1]), longest)  # [B N T, T]
        kept = bits >= tf.constant(dropout_threshold(dropout_rate), tf.uint32)
        kept = tf.reshape(kept, tf.shape(probabilities))  # [B, N, T, T]
        zero_or_nan = 0.0 * tf.stop_gradient(tf.reduce_sum(probabilities, axis=-1))  # [B, N, T]
        probabilities = tf.where(kept, probabilities * dropout_scale(dropout_rate), 0.0)

    output = tf.einsum("bnqk,bknd->bqnd", probabilities, value)  # [B, T, N, D]
    if dropout_rate > 0.0:  # a softmax that is NaN stays so, whatever dropout keeps of it
        output += tf.transpose(zero_or_nan, [0, 2, 1])[..., tf.newaxis]
    # [B, T, N, D] -> [B T, N, D] -> [R, N, D]; row r's sequence is the first that ends past r.
    flat = tf.reshape(output, tf.concat([[-1], tf.shape(qkv)[2:]], axis=0))
    row = tf.range(num_rows)
    sequence = tf.searchsorted(row_splits[1:], row, side="right", out_type=tf.int64)
    output = tf.gather(flat, sequence * longest + row - tf.gather(starts, sequence))
    output = tf.ensure_shape(output, [qkv.shape[0], qkv.shape[2], qkv.shape[3]])
    return tf.cast(output, qkv.dtype)


def _sees(positions, causal, window_size, num_global_tokens) -> tf.Tensor:
    """[T] positions -> [T, T], whether the query (row) sees the key (column)."""
    query, key = positions[:, tf.newaxis], positions[tf.newaxis, :]
    sees = tf.ones_like(query == key)
    if window_size is not None:
        sees = tf.abs(query - key) <= window_size
        sees |= (query < num_global_tokens) | (key < num_global_tokens)
    if causal:
        sees &= key <= query
    return sees


@tf.RegisterGradient("BertTf>VarlenAttention")
def _varlen_attention_gradient(
    op: tf.Operation, d_output: tf.Tensor, _: tf.Tensor
) -> list[tf.Tensor | None]:
    qkv, row_splits, seed = op.inputs
    output, logsumexp = op.outputs
    d_qkv = native.library().bert_tf_varlen_attention_grad(
        d_output,
        qkv,
        output,
        logsumexp,
        row_splits,
        seed,
        dropout_rate=op.get_attr("dropout_rate"),
        causal=op.get_attr("causal"),
        window_size=op.get_attr("window_size"),
        num_global_tokens=op.get_attr("num_global_tokens"),
    )
    return [d_qkv, None, None]


refuse_second_order("BertTf>VarlenAttentionGrad", "varlen_attention")
