"""Softmax attention over packed sequences of any length, without padding and `[T, T]` tensors.

    out[r, n] = sum_j dropout(softmax_j(q[r, n] . k[j, n] / sqrt(D) + bias[n, r - j])) v[j, n]

The sum is over the keys j of the sequence of row r that the mask does not hide from r; the keys are
those of the same tokens or, without a bias, of other sequences. The native kernel
(`custom_ops/kernels/attention/varlen_attention.h`) processes tiles with an online softmax, as in
FlashAttention (Dao et al., arXiv 2205.14135), on tokens that are packed without padding, as in
ByteTransformer (Zhai et al., arXiv 2210.03052). Its gradient recomputes the probabilities. The
window and the global tokens are those of Longformer (Beltagy et al., arXiv 2004.05150), the bias of
the distance is that of T5 (Raffel et al., arXiv 1910.10683), the rotation of queries and keys by
their places is RoFormer's (Su et al., arXiv 2104.09864); the kernel applies it to the tiles that it
loads. Queries and keys of distances are DeBERTa's (He et al., arXiv 2006.03654).

Glossary: `B` sequences, `T` length of a sequence (of the longest one in the reference
implementation), `R` tokens of all sequences, `Rq` queries and `Rk` keys of all sequences, `N`
heads, `D` head size, `M` the largest distance of query and key with a bias of its own.
"""

import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule, PaddedAttention, PaddedRows


def varlen_cross_attention(
    query: tf.Tensor,
    key_value: tf.Tensor,
    query_row_splits: tf.Tensor,
    key_row_splits: tf.Tensor,
    dropout_rate: float = 0.0,
    seed: int | tf.Tensor | None = None,
    rule: AttentionRule = EVERY_TOKEN,
    compute_dtype: str | None = None,
) -> tf.Tensor:
    """Computes multi-head attention of packed queries to the keys of other packed sequences.

    The queries of sequence b attend to the keys of sequence b. Uses are the attention of a decoder
    to an encoder, new tokens that attend to a cache of keys and values, and a prefix language model
    whose queries are only the target tokens.

    With a causal rule, queries and keys are aligned at their ends: query i of n attends to key j of
    m if j <= i + m - n, so the last query attends to all keys. The output of a query that attends
    to no key is zero, and so are its gradients.

    Arithmetic, dropout and `compute_dtype` are those of `varlen_attention`, and so are the bits if
    queries and keys are those of the same tokens. The op can be differentiated once, with respect
    to `query` and `key_value`. If a GPU is visible, the reference implementation is used.

    Args:
        query: `[Rq, N, D]`, float32, bfloat16 or float16: the queries of all sequences, one
            sequence after the other.
        key_value: `[Rk, 2, N, D]` with the dtype of `query`: the keys and the values.
        query_row_splits: `[B + 1]`, int32 or int64: where the queries of each sequence begin, and
            Rq at the end. A sequence may have no queries.
        key_row_splits: `[B + 1]`, int32 or int64: the same for the keys, with Rk at the end.
        dropout_rate, seed: See `varlen_attention`.
        rule: The `AttentionRule`, of which only `causal` may be set: queries then do not attend to
            later keys.
        compute_dtype: "bfloat16" for matrix products in bfloat16. None means float32, unless
            `query` is bfloat16.

    Returns:
        `[Rq, N, D]` with the dtype of `query`.

    Raises:
        TypeError: If the dtype of a tensor is not supported, or those of `query` and `key_value`
            differ.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match; row splits do not begin
            with 0, do not end with the number of rows, or decrease; `dropout_rate` is outside of
            [0, 1) or has no seed; the rule has more than `causal`; or `compute_dtype` is neither
            None nor "bfloat16".

    Example:
        >>> query = tf.random.normal([3, 2, 8])  # two sequences: one query and two queries
        >>> key_value = tf.random.normal([9, 2, 2, 8])  # with five and four keys
        >>> bert_tf.ops.varlen_cross_attention(query, key_value, [0, 1, 3], [0, 5, 9]).shape
        TensorShape([3, 2, 8])

    Reference: FlashAttention, arXiv 2205.14135; its causal mask is aligned in the same way since
    version 2.1.
    """
    query, key_value = native.float_tensors(query=query, key_value=key_value)
    query_row_splits = native.row_splits_tensor("query_row_splits", query_row_splits)
    key_row_splits = native.row_splits_tensor("key_row_splits", key_row_splits)
    _check(query, key_value, query_row_splits, key_row_splits, rule)
    dropout_rate, seed = native.dropout_arguments(dropout_rate, seed)
    bfloat16_products = native.multiplies_bfloat16(query, compute_dtype)
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        padded = _padded(query, key_value, query_row_splits, key_row_splits, rule)
        return padded.attention(dropout_rate, seed, bfloat16_products)
    output, _ = library.bert_tf_varlen_cross_attention(
        query,
        key_value,
        query_row_splits,
        key_row_splits,
        seed,
        dropout_rate=dropout_rate,
        causal=bool(rule.causal),
        bfloat16_products=bfloat16_products,
    )
    return output


varlen_cross_attention_reference = native.reference_of(
    varlen_cross_attention,
    """It runs on any device, is twice differentiable and differs from the native op as
    `varlen_attention_reference` does.""",
)


def _check(query, key_value, query_row_splits, key_row_splits, rule):
    """Raises `ValueError` for shapes that do not match, and for rules of self-attention."""
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
    if not key_row_splits.shape.is_compatible_with(query_row_splits.shape):
        raise ValueError(
            "`key_row_splits` must have the length of `query_row_splits`. Received: "
            f"key_row_splits.shape={key_row_splits.shape}, "
            f"query_row_splits.shape={query_row_splits.shape}"
        )
    others = (rule.attended_rows, rule.window_size, rule.distance_bias, rule.rotation)
    others = (*others, rule.distance_vectors, rule.attended_blocks)
    if any(other is not None for other in others):
        raise ValueError(
            "`rule` must have no `attended_rows`, `attended_blocks`, `window_size`, "
            f"`distance_bias` and `rotation` in cross-attention. Received: rule={rule}"
        )


def _padded(query, key_value, query_row_splits, key_row_splits, rule) -> PaddedAttention:
    check = tf.debugging.assert_equal(
        tf.shape(key_row_splits),
        tf.shape(query_row_splits),
        "`key_row_splits` must have the length of `query_row_splits`.",
    )
    with tf.control_dependencies([] if check is None else [check]):
        key_value = tf.ensure_shape(key_value, [None, 2, None, None])
    query = tf.ensure_shape(query, [None, None, None])
    queries = PaddedRows(query, query_row_splits, "query_row_splits", "query")
    keys = PaddedRows(key_value, key_row_splits, "key_row_splits", "key_value")
    key, value = tf.unstack(keys.padded(), num=2, axis=2)  # each [B, Tk, N, D]
    return PaddedAttention(queries, keys, queries.padded(), key, value, rule)


@tf.RegisterGradient("BertTf>VarlenCrossAttention")
def _varlen_cross_attention_gradient(
    op: tf.Operation, d_output: tf.Tensor, _: tf.Tensor
) -> list[tf.Tensor | None]:
    query, key_value, query_row_splits, key_row_splits, seed = op.inputs
    output, logsumexp = op.outputs
    d_query, d_key_value = native.library().bert_tf_varlen_cross_attention_grad(
        d_output,
        query,
        key_value,
        output,
        logsumexp,
        query_row_splits,
        key_row_splits,
        seed,
        dropout_rate=op.get_attr("dropout_rate"),
        causal=op.get_attr("causal"),
        bfloat16_products=op.get_attr("bfloat16_products"),
    )
    return [d_query, d_key_value, None, None, None]


native.refuse_second_order("BertTf>VarlenCrossAttentionGrad", "varlen_cross_attention")


def varlen_attention(
    qkv: tf.Tensor,
    row_splits: tf.Tensor,
    dropout_rate: float = 0.0,
    seed: int | tf.Tensor | None = None,
    rule: AttentionRule = EVERY_TOKEN,
    compute_dtype: str | None = None,
    max_length: int | None = None,
) -> tf.Tensor:
    """Computes multi-head attention of packed sequences; each token attends to its own sequence.

    The softmax and all sums are computed in float32 for every dtype, and the results have the same
    bits for every number of threads. Additional memory is linear in the sequence length.

    If `qkv` or `compute_dtype` is bfloat16, matrix products are computed in bfloat16: queries,
    keys, values and the weights of the values are rounded to it, to nearest even; in the gradient,
    also the gradients of the output and of the scores. Processors with AVX512-BF16 multiply these
    about 1.5 times as fast as float32. Other processors compute the same products, but not faster.
    On a GPU, `compute_dtype` has no effect. There, cuDNN may compute bfloat16 and float16 and then
    draws other dropout masks than the reference implementation (docs/performance/gpu.md).

    The native op can be differentiated once, with respect to `qkv`, the distance bias and the
    vectors of distances. On a GPU, the reference implementation computes attention with vectors of
    distances and to blocks. A gradient of the gradient needs the reference implementation
    (`bert_tf.ops.backend("reference")`).

    With `rule.attended_blocks`, each block of queries attends to copies of the keys and values of
    its blocks, so memory grows with their number, and dropout draws another mask than the
    reference implementation.

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
            distance bias and the vectors of distances have the dtype of `qkv`.
        compute_dtype: "bfloat16" for matrix products in bfloat16. None means float32, unless `qkv`
            is bfloat16.
        max_length: At least the length of the longest sequence, if it is known. Only cuDNN uses it,
            to save time and memory; it cuts longer sequences off.

    Returns:
        `[R, N, D]` with the dtype of `qkv`.

    Raises:
        TypeError: If the dtype of `qkv`, `row_splits`, the distance bias or the vectors of
            distances is not supported.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match; `row_splits` does not
            begin with 0, does not end with R, or decreases; the distance bias has an even number
            of columns; `dropout_rate` is outside of [0, 1) or has no seed; `compute_dtype` is
            neither None nor "bfloat16"; or `max_length` is below 1.

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.varlen_attention(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])

    Reference: FlashAttention, arXiv 2205.14135; ByteTransformer, arXiv 2210.03052.
    """
    if max_length is not None and max_length < 1:
        raise ValueError(
            f"`max_length` must be None or at least 1. Received: max_length={max_length}"
        )
    qkv, row_splits, distance_bias = native.self_attention_tensors(qkv, row_splits, rule)
    has_distances = rule.distance_vectors is not None
    distances = native.distance_vector_tensors(qkv, rule) if has_distances else ([], [])
    has_blocks = rule.attended_blocks is not None
    library = native.used_library(not (has_distances or has_blocks), "varlen_attention")
    if rule.attended_rows is not None or (has_blocks and library is not None):
        qkv, rule = rule.rotate_packed(qkv, row_splits)
    dropout_rate, seed = native.dropout_arguments(dropout_rate, seed)
    bfloat16_products = native.multiplies_bfloat16(qkv, compute_dtype)
    if rule.attended_rows is not None:
        return _attention_to_some(qkv, row_splits, dropout_rate, seed, rule, compute_dtype)
    if library is None:
        padded = PaddedAttention.of_self(qkv, row_splits, rule)
        return padded.attention(dropout_rate, seed, bfloat16_products)
    if has_blocks:
        return _attention_to_blocks(qkv, row_splits, dropout_rate, seed, rule, compute_dtype)
    output, _ = library.bert_tf_varlen_attention(
        qkv,
        row_splits,
        seed,
        distance_bias,
        [] if rule.rotation is None else [rule.rotation],
        *distances,
        dropout_rate=dropout_rate,
        bfloat16_products=bfloat16_products,
        max_length=max_length or 0,
        **rule.attributes,
    )
    return output


varlen_attention_reference = native.reference_of(
    varlen_attention,
    """It runs on any device and is twice differentiable. It pads to the longest sequence and needs
    `[B, N, T, T]` tensors. It draws the same dropout mask as the native op, unless that is cuDNN's
    on a GPU. Unlike there, a value that is not finite also affects the rows of its sequence from
    which a mask hides it, because its product with zero is NaN.""",
)


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


def _attention_to_blocks(qkv, row_splits, dropout_rate, seed, rule, compute_dtype):
    """Computes the attention to `rule.attended_blocks` as that of blocks to keys of their own.

    Glossary: `S` sequences, `n` blocks of the longest one, `Q` blocks and `P` pairs of blocks of
    all.
    """
    row_splits, size = tf.cast(row_splits, tf.int32), rule.block_size
    firsts = tf.range(tf.shape(rule.attended_blocks)[1]) * size  # [n]
    starts, ends = row_splits[:-1, tf.newaxis] + firsts, row_splits[1:, tf.newaxis]  # [S, n]
    counts = tf.clip_by_value(ends - starts, 0, size)  # [S, n], the tokens of each block
    check = tf.debugging.assert_equal(
        tf.reduce_sum(counts),
        row_splits[-1],
        "`rule.attended_blocks` must have a row for each block of a sequence.",
    )
    with tf.control_dependencies([] if check is None else [check]):
        is_block = counts > 0
    pairs = rule.attended_blocks & is_block[:, :, tf.newaxis] & is_block[:, tf.newaxis]  # [S, n, n]
    key_counts = tf.reduce_sum(tf.where(pairs, counts[:, tf.newaxis], 0), axis=2)  # [S, n]
    key_row_splits = tf.cumsum(tf.boolean_mask(key_counts, is_block))  # [Q]
    sequence, _, key = tf.unstack(tf.where(pairs), num=3, axis=1)  # [P] each
    blocks = tf.stack([sequence, key], axis=1)
    first = tf.gather_nd(starts, blocks)  # [P]
    rows = tf.ragged.range(first, first + tf.gather_nd(counts, blocks)).values
    return varlen_cross_attention(
        qkv[:, 0],
        tf.gather(qkv[:, 1:], rows),
        tf.concat([tf.boolean_mask(starts, is_block), row_splits[-1:]], axis=0),  # [Q + 1]
        tf.concat([[0], key_row_splits], axis=0),
        dropout_rate,
        seed,
        compute_dtype=compute_dtype,
    )


@tf.RegisterGradient("BertTf>VarlenAttention")
def _varlen_attention_gradient(
    op: tf.Operation, d_output: tf.Tensor, _: tf.Tensor
) -> list[tf.Tensor | None]:
    qkv, row_splits, seed, *others = op.inputs
    end = op.get_attr("num_distance_bias")
    distance_bias, others = others[:end], others[end:]
    end = op.get_attr("num_rotation")
    rotation, distances = others[:end], others[end:]
    end = op.get_attr("num_distance_vectors")  # and as many tensors of their rows
    output, logsumexp = op.outputs
    d_qkv, d_distance_bias, d_vectors = native.library().bert_tf_varlen_attention_grad(
        d_output,
        qkv,
        output,
        logsumexp,
        row_splits,
        seed,
        distance_bias,
        rotation,
        distances[:end],
        distances[end:],
        dropout_rate=op.get_attr("dropout_rate"),
        causal=op.get_attr("causal"),
        window_size=op.get_attr("window_size"),
        num_global_tokens=op.get_attr("num_global_tokens"),
        max_length=op.get_attr("max_length"),
        bfloat16_products=op.get_attr("bfloat16_products"),
    )
    none = [None] * end
    return [d_qkv, None, None, *d_distance_bias, *[None] * len(rotation), *d_vectors, *none]


native.refuse_second_order("BertTf>VarlenAttentionGrad", "varlen_attention")
