"""Softmax attention over packed sequences of any length, without padding and `[T, T]` tensors.

    out[r, n] = sum_j dropout(softmax_j(q[r, n] . k[j, n] / sqrt(D))) v[j, n]

The sum is over the tokens j of the sequence of row r that the mask does not hide from r. The native
kernel (`custom_ops/kernels/attention/varlen_attention.h`) processes tiles with an online softmax,
as in FlashAttention (Dao et al., arXiv 2205.14135), on tokens that are packed without padding, as
in ByteTransformer (Zhai et al., arXiv 2210.03052). Its gradient recomputes the probabilities. The
window and the global tokens are those of Longformer (Beltagy et al., arXiv 2004.05150).

Glossary: `B` sequences, `T` length of a sequence (of the longest one in the reference
implementation), `R` tokens of all sequences, `N` heads, `D` head size.
"""

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
from bert_tf.signatures import has_signature_of

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
    """Computes multi-head attention of packed sequences; each token attends to its own sequence.

    A query at position i of its sequence attends to the key at position j if (not causal or j <= i)
    and (there is no window, or |i - j| <= window_size, or i < num_global_tokens, or
    j < num_global_tokens). Everything is computed in float32 for every dtype, and the results have
    the same bits for every number of threads. Additional memory is linear in the sequence length.
    The native op can be differentiated once, with respect to `qkv`. A gradient of the gradient
    needs the reference implementation (`bert_tf.ops.backend("reference")`).

    Args:
        qkv: `[R, 3, N, D]`, float32, bfloat16 or float16: the queries, keys and values of all
            tokens, one sequence after the other, as computed by one dense layer.
        row_splits: `[B + 1]`, int32 or int64: the start of each sequence, and R at the end, as in
            `tf.RaggedTensor.row_splits`. Sequences may be empty.
        dropout_rate: The fraction of the attention probabilities that is set to zero, in [0, 1).
            The rest is scaled by 1 / (1 - dropout_rate). Pass 0 when not training.
        seed: An int or a scalar int64 tensor. Required for dropout; pass another seed for each
            call in a step and for each step.
        causal: Whether tokens do not attend to later tokens.
        window_size: How many tokens to either side a token attends to. None means its whole
            sequence.
        num_global_tokens: The number of first tokens of each sequence for which the window does
            not apply: they attend to all tokens, and all tokens attend to them.

    Returns:
        `[R, N, D]` with the dtype of `qkv`.

    Raises:
        TypeError: If the dtype of `qkv` or `row_splits` is not supported.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match; `row_splits` does not
            begin with 0, does not end with R, or decreases; `dropout_rate` is outside of [0, 1) or
            has no seed; `window_size` or `num_global_tokens` is negative; or there are global
            tokens without a window.

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.varlen_attention(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])

    Reference: FlashAttention, arXiv 2205.14135; ByteTransformer, arXiv 2210.03052.
    """
    (qkv,) = float_tensors(qkv=qkv)
    if not qkv.shape.is_compatible_with([None, 3, None, None]):
        raise ValueError(
            f"`qkv` must have shape [tokens, 3, heads, head size]. Received: qkv.shape={qkv.shape}"
        )
    row_splits = tf.convert_to_tensor(row_splits)
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
    if window_size is not None and window_size < 0:
        raise ValueError(
            "`window_size` must be at least 0, or None for no window. "
            f"Received: window_size={window_size}"
        )
    if num_global_tokens < 0:
        raise ValueError(
            "`num_global_tokens` must be at least 0. "
            f"Received: num_global_tokens={num_global_tokens}"
        )
    if num_global_tokens > 0 and window_size is None:
        raise ValueError(
            "`window_size` must be given with `num_global_tokens`: without a window, all tokens "
            f"are global. Received: num_global_tokens={num_global_tokens}, window_size=None"
        )
    dropout_rate = check_dropout(dropout_rate, seed)
    window_size = None if window_size is None else int(window_size)
    num_global_tokens = int(num_global_tokens)
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


@has_signature_of(varlen_attention)
def varlen_attention_reference(*args, **kwargs):
    """The reference implementation of `varlen_attention`, in stock TensorFlow ops.

    It runs on any device and is twice differentiable. It pads to the longest sequence and needs
    `[B, N, T, T]` tensors. It draws the same dropout mask as the native op. Unlike there, a value
    that is not finite also affects the rows of its sequence from which a mask hides it, because its
    product with zero is NaN.

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.varlen_attention_reference(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])
    """
    return native.call_reference(varlen_attention, *args, **kwargs)


def _reference(
    qkv, row_splits, dropout_rate, seed, causal, window_size, num_global_tokens
) -> tf.Tensor:
    num_rows = tf.shape(qkv, out_type=tf.int64)[0]  # R
    row_splits = tf.cast(row_splits, tf.int64)
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
    # A padded query attends to everything, so that its softmax is finite; it is dropped below.
    sees |= ~is_token[:, :, tf.newaxis]
    scores = tf.where(sees[:, tf.newaxis], scores, -math.inf)
    probabilities = tf.nn.softmax(scores)
    if causal or window_size is not None:
        # Even if the softmax of a row is NaN (its scores overflow), hidden keys have probability 0.
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
    if dropout_rate > 0.0:  # a row whose softmax is NaN stays NaN, even if dropout removes the NaN
        output += tf.transpose(zero_or_nan, [0, 2, 1])[..., tf.newaxis]
    # [B, T, N, D] -> [B T, N, D] -> [R, N, D]; row r is in the first sequence that ends after r.
    flat = tf.reshape(output, tf.concat([[-1], tf.shape(qkv)[2:]], axis=0))
    row = tf.range(num_rows)
    sequence = tf.searchsorted(row_splits[1:], row, side="right", out_type=tf.int64)
    output = tf.gather(flat, sequence * longest + row - tf.gather(starts, sequence))
    output = tf.ensure_shape(output, [qkv.shape[0], qkv.shape[2], qkv.shape[3]])
    return tf.cast(output, qkv.dtype)


def _sees(positions, causal, window_size, num_global_tokens) -> tf.Tensor:
    """[T] positions -> [T, T], whether the query (row) attends to the key (column)."""
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
