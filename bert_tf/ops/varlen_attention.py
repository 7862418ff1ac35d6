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

import tensorflow as tf

from bert_tf.base.signatures import has_signature_of
from bert_tf.ops import native
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule
from bert_tf.ops.differentiable_once import refuse_second_order
from bert_tf.ops.native import dropout_arguments, multiplies_bfloat16, self_attention_tensors
from bert_tf.ops.padded_attention import PaddedAttention
from bert_tf.ops.varlen_cross_attention import varlen_cross_attention


def varlen_attention(
    qkv: tf.Tensor,
    row_splits: tf.Tensor,
    dropout_rate: float = 0.0,
    seed: int | tf.Tensor | None = None,
    rule: AttentionRule = EVERY_TOKEN,
    compute_dtype: str | None = None,
) -> tf.Tensor:
    """Computes multi-head attention of packed sequences; each token attends to its own sequence.

    The softmax and all sums are computed in float32 for every dtype, and the results have the same
    bits for every number of threads. Additional memory is linear in the sequence length.

    If `qkv` or `compute_dtype` is bfloat16, matrix products are computed in bfloat16: queries,
    keys, values and the weights of the values are rounded to it, to nearest even; in the gradient,
    also the gradients of the output and of the scores. Processors with AVX512-BF16 multiply these
    about 1.5 times as fast as float32. Other processors compute the same products, but not faster.
    On a GPU, `compute_dtype` has no effect.

    The native op can be differentiated once, with respect to `qkv` and the distance bias. A
    gradient of the gradient needs the reference implementation
    (`bert_tf.ops.backend("reference")`).

    Args:
        qkv: `[R, 3, N, D]`, float32, bfloat16 or float16: the queries, keys and values of all
            tokens, one sequence after the other, as computed by one dense layer.
        row_splits: `[B + 1]`, int32 or int64: the start of each sequence, and R at the end, as in
            `tf.RaggedTensor.row_splits`. Sequences may be empty.
        dropout_rate: The fraction of the attention probabilities that is set to zero, in [0, 1).
            The rest is scaled by 1 / (1 - dropout_rate). Pass 0 when not training.
        seed: An int or a scalar int64 tensor. Required for dropout; pass another seed for each
            call in a step and for each step.
        rule: The `AttentionRule`. By default, a token attends to all tokens of its sequence. The
            distance bias has the dtype of `qkv`.
        compute_dtype: "bfloat16" for matrix products in bfloat16. None means float32, unless `qkv`
            is bfloat16.

    Returns:
        `[R, N, D]` with the dtype of `qkv`.

    Raises:
        TypeError: If the dtype of `qkv`, `row_splits` or the distance bias is not supported.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match; `row_splits` does not
            begin with 0, does not end with R, or decreases; the distance bias has an even number
            of columns; `dropout_rate` is outside of [0, 1) or has no seed; or `compute_dtype` is
            neither None nor "bfloat16".

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.varlen_attention(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])

    Reference: FlashAttention, arXiv 2205.14135; ByteTransformer, arXiv 2210.03052.
    """
    qkv, row_splits, distance_bias = self_attention_tensors(qkv, row_splits, rule)
    dropout_rate, seed = dropout_arguments(dropout_rate, seed)
    bfloat16_products = multiplies_bfloat16(qkv, compute_dtype)
    if rule.attended_rows is not None:
        return _attention_to_some(qkv, row_splits, dropout_rate, seed, rule, compute_dtype)
    library = native.used_library()
    if library is None:
        padded = PaddedAttention.of_self(qkv, row_splits, rule)
        return padded.attention(dropout_rate, seed, bfloat16_products)
    output, _ = library.bert_tf_varlen_attention(
        qkv,
        row_splits,
        seed,
        distance_bias,
        dropout_rate=dropout_rate,
        bfloat16_products=bfloat16_products,
        **rule.attributes,
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


def _attention_to_some(qkv, row_splits, dropout_rate, seed, rule, compute_dtype):
    """Computes the attention to `rule.attended_rows`, and with `causal` to earlier rows.

    Glossary: `P` tokens that are attended to, the prefixes; `Q` the others, the targets.
    """
    is_prefix = tf.cast(rule.attended_rows, tf.int32)  # [R]
    counts = tf.concat([[0], tf.cumsum(is_prefix)], axis=0)  # [R + 1]
    prefix_row_splits = tf.gather(counts, row_splits)  # [B + 1]
    targets, prefixes = tf.dynamic_partition(qkv, is_prefix, 2)  # [Q, 3, N, D], [P, 3, N, D]
    of_prefixes = varlen_attention(
        prefixes, prefix_row_splits, dropout_rate, seed, compute_dtype=compute_dtype
    )
    keys, key_row_splits = (qkv, row_splits) if rule.causal else (prefixes, prefix_row_splits)
    of_targets = varlen_cross_attention(
        targets[:, 0],
        keys[:, 1:],
        tf.cast(row_splits, tf.int32) - prefix_row_splits,
        key_row_splits,
        dropout_rate,
        tf.bitwise.invert(seed),  # not the masks of the prefixes
        AttentionRule(causal=rule.causal),
        compute_dtype,
    )
    places = tf.dynamic_partition(tf.range(tf.shape(qkv)[0]), is_prefix, 2)  # [Q], [P]
    return tf.dynamic_stitch(places, [of_targets, of_prefixes])


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
