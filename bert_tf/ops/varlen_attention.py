"""Softmax attention over packed sequences of any length, without padding and `[T, T]` tensors.

    out[r, n] = sum_j dropout(softmax_j(q[r, n] . k[j, n] / sqrt(D) + bias[n, r - j])) v[j, n]

The sum is over the tokens j of the sequence of row r that the mask does not hide from r. The native
kernel (`custom_ops/kernels/attention/varlen_attention.h`) processes tiles with an online softmax,
as in FlashAttention (Dao et al., arXiv 2205.14135), on tokens that are packed without padding, as
in ByteTransformer (Zhai et al., arXiv 2210.03052). Its gradient recomputes the probabilities. The
window and the global tokens are those of Longformer (Beltagy et al., arXiv 2004.05150), the bias of
the distance is that of T5 (Raffel et al., arXiv 1910.10683).

Glossary: `B` sequences, `T` length of a sequence (of the longest one in the reference
implementation), `R` tokens of all sequences, `N` heads, `D` head size, `M` the largest distance of
query and key with a bias of its own.
"""

import math

import tensorflow as tf

from bert_tf.base.signatures import has_signature_of
from bert_tf.ops import native
from bert_tf.ops.arguments import check_dropout
from bert_tf.ops.differentiable_once import refuse_second_order
from bert_tf.ops.packed_attention import PackedAttention, multiplies_bfloat16
from bert_tf.ops.padded_attention import PaddedAttention
from bert_tf.ops.philox import (
    dropout_scale,
    dropout_threshold,
    philox_uniform_bits_streams,
    seed_tensor,
)


def varlen_attention(
    qkv: tf.Tensor,
    row_splits: tf.Tensor,
    dropout_rate: float = 0.0,
    seed: int | tf.Tensor | None = None,
    causal: bool = False,
    window_size: int | None = None,
    num_global_tokens: int = 0,
    compute_dtype: str | None = None,
    distance_bias: tf.Tensor | None = None,
) -> tf.Tensor:
    """Computes multi-head attention of packed sequences; each token attends to its own sequence.

    A query at position i of its sequence attends to the key at position j if (not causal or j <= i)
    and (there is no window, or |i - j| <= window_size, or i < num_global_tokens, or
    j < num_global_tokens). The softmax and all sums are computed in float32 for every dtype, and
    the results have the same bits for every number of threads. Additional memory is linear in the
    sequence length.

    If `qkv` or `compute_dtype` is bfloat16, matrix products are computed in bfloat16: queries,
    keys, values and the weights of the values are rounded to it, to nearest even; in the gradient,
    also the gradients of the output and of the scores. Processors with AVX512-BF16 multiply these
    about 1.5 times as fast as float32. Other processors compute the same products, but not faster.
    On a GPU, `compute_dtype` has no effect.

    The native op can be differentiated once, with respect to `qkv` and `distance_bias`. A gradient
    of the gradient needs the reference implementation (`bert_tf.ops.backend("reference")`).

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
        compute_dtype: "bfloat16" for matrix products in bfloat16. None means float32, unless `qkv`
            is bfloat16.
        distance_bias: `[N, 2 M + 1]`, with the dtype of `qkv`: to the score of a query at position
            i and a key at position j, `distance_bias[:, M + clip(i - j, -M, M)]` is added.

    Returns:
        `[R, N, D]` with the dtype of `qkv`.

    Raises:
        TypeError: If the dtype of `qkv`, `row_splits` or `distance_bias` is not supported.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match; `row_splits` does not
            begin with 0, does not end with R, or decreases; `distance_bias` has an even number of
            columns; `dropout_rate` is outside of [0, 1) or
            has no seed; `window_size` or `num_global_tokens` is negative; there are global tokens
            without a window; or `compute_dtype` is neither None nor "bfloat16".

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.varlen_attention(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])

    Reference: FlashAttention, arXiv 2205.14135; ByteTransformer, arXiv 2210.03052.
    """
    attention = PackedAttention(
        qkv, row_splits, causal, window_size, num_global_tokens, distance_bias
    )
    dropout_rate = check_dropout(dropout_rate, seed)
    bfloat16_products = multiplies_bfloat16(attention.qkv, compute_dtype)
    if not native.use_native():
        padded = attention.padded()
        return padded.pack(padded_attention(padded, dropout_rate, seed, bfloat16_products))
    output, _ = native.library().bert_tf_varlen_attention(
        attention.qkv,
        attention.row_splits,
        seed_tensor(seed),
        attention.distance_biases,
        dropout_rate=dropout_rate,
        bfloat16_products=bfloat16_products,
        **attention.attributes(),
    )
    return output


@has_signature_of(varlen_attention)
def varlen_attention_reference(*args, **kwargs):
    """Computes `varlen_attention` in stock TensorFlow ops: the reference implementation.

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


def padded_attention(
    padded: PaddedAttention, dropout_rate: float, seed, bfloat16_products: bool
) -> tf.Tensor:
    """Returns the attention of a padded batch, `[B, T, N, D]`, in stock TensorFlow ops."""

    def factor(tensor):
        return tf.cast(tf.cast(tensor, tf.bfloat16), tf.float32) if bfloat16_products else tensor

    query = factor(padded.query) * padded.score_scale
    scores = tf.einsum("bqnd,bknd->bnqk", query, factor(padded.key))  # [B, N, T, T]
    scores = padded.with_distance_bias(scores)
    probabilities = tf.nn.softmax(tf.where(padded.sees, scores, -math.inf))
    if padded.causal or padded.window_size is not None:
        # Even if the softmax of a row is NaN (its scores overflow), hidden keys have probability 0.
        probabilities = tf.where(padded.sees, probabilities, 0.0)

    if dropout_rate > 0.0:
        num_heads = tf.shape(padded.query, out_type=tf.int64)[2]
        heads = tf.range(num_heads)[:, tf.newaxis]
        streams = padded.queries.rows[:, tf.newaxis] * num_heads + heads  # [B, N, T]
        longest = tf.shape(scores, out_type=tf.int64)[-1]  # T
        bits = philox_uniform_bits_streams(seed, tf.reshape(streams, [-1]), longest)  # [B N T, T]
        kept = bits >= tf.constant(dropout_threshold(dropout_rate), tf.uint32)
        kept = tf.reshape(kept, tf.shape(probabilities))  # [B, N, T, T]
        zero_or_nan = 0.0 * tf.stop_gradient(tf.reduce_sum(probabilities, axis=-1))  # [B, N, T]
        probabilities = tf.where(kept, probabilities * dropout_scale(dropout_rate), 0.0)

    probabilities, value = factor(probabilities), factor(padded.value)
    output = tf.einsum("bnqk,bknd->bqnd", probabilities, value)  # [B, T, N, D]
    if dropout_rate > 0.0:  # a row whose softmax is NaN stays NaN, even if dropout removes the NaN
        output += tf.transpose(zero_or_nan, [0, 2, 1])[..., tf.newaxis]
    return output


@tf.RegisterGradient("BertTf>VarlenAttention")
def _varlen_attention_gradient(
    op: tf.Operation, d_output: tf.Tensor, _: tf.Tensor
) -> list[tf.Tensor | None]:
    qkv, row_splits, seed, *distance_bias = op.inputs
    output, logsumexp = op.outputs
    d_qkv, d_distance_bias = native.library().bert_tf_varlen_attention_grad(
        d_output,
        qkv,
        output,
        logsumexp,
        row_splits,
        seed,
        distance_bias,
        dropout_rate=op.get_attr("dropout_rate"),
        causal=op.get_attr("causal"),
        window_size=op.get_attr("window_size"),
        num_global_tokens=op.get_attr("num_global_tokens"),
        bfloat16_products=op.get_attr("bfloat16_products"),
    )
    return [d_qkv, None, None, *d_distance_bias]


refuse_second_order("BertTf>VarlenAttentionGrad", "varlen_attention")
