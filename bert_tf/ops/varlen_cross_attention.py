"""`varlen_attention` with queries and keys of different sequences.

    out[r, n] = sum_j dropout(softmax_j(q[r, n] . k[j, n] / sqrt(D))) v[j, n]

The sum is over the keys j of the sequence of row r that the mask does not hide from r. The native
kernel is that of `varlen_attention`.

Glossary: `B` sequences, `Rq` queries and `Rk` keys of all sequences, `N` heads, `D` head size.
"""

import tensorflow as tf

from bert_tf.base.signatures import has_signature_of
from bert_tf.ops import native
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule
from bert_tf.ops.differentiable_once import refuse_second_order
from bert_tf.ops.native import (
    dropout_arguments,
    float_tensors,
    multiplies_bfloat16,
    row_splits_tensor,
)
from bert_tf.ops.padded_attention import PaddedAttention, PaddedRows


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
        dropout_rate: The fraction of the attention probabilities that is set to zero, in [0, 1).
            The rest is scaled by 1 / (1 - dropout_rate). Pass 0 when not training.
        seed: An int or a scalar int64 tensor. Required for dropout; pass another seed for each
            call in a step and for each step.
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
    query, key_value = float_tensors(query=query, key_value=key_value)
    query_row_splits = row_splits_tensor("query_row_splits", query_row_splits)
    key_row_splits = row_splits_tensor("key_row_splits", key_row_splits)
    _check(query, key_value, query_row_splits, key_row_splits, rule)
    dropout_rate, seed = dropout_arguments(dropout_rate, seed)
    bfloat16_products = multiplies_bfloat16(query, compute_dtype)
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


@has_signature_of(varlen_cross_attention)
def varlen_cross_attention_reference(*args, **kwargs):
    """Computes `varlen_cross_attention` in stock TensorFlow ops: the reference implementation.

    It runs on any device, is twice differentiable and differs from the native op as
    `varlen_attention_reference` does.

    Example:
        >>> query = tf.random.normal([3, 2, 8])  # two sequences: one query and two queries
        >>> key_value = tf.random.normal([9, 2, 2, 8])  # with five and four keys
        >>> reference = bert_tf.ops.varlen_cross_attention_reference
        >>> reference(query, key_value, [0, 1, 3], [0, 5, 9]).shape
        TensorShape([3, 2, 8])
    """
    return native.call_reference(varlen_cross_attention, *args, **kwargs)


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
    others = (rule.attended_rows, rule.window_size, rule.distance_bias)
    if any(other is not None for other in others):
        raise ValueError(
            "`rule` must have no `attended_rows`, `window_size` and `distance_bias` in "
            f"cross-attention. Received: rule={rule}"
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


refuse_second_order("BertTf>VarlenCrossAttentionGrad", "varlen_cross_attention")
