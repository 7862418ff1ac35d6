"""Scaled dot-product attention in stock TensorFlow ops, for padded batches and for caches.

Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1.
"""

import tensorflow as tf

from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.dropout import stateless_dropout
from bert_tf.ops.attention_rule import AttentionRule, rotated

# Replaces the scores of padding. google-research/bert adds -10000 instead. This value is so far
# below any score that padding gets a probability of exactly zero, and it is in float32's range.
MASKED_SCORE = -1e9


def dot_product_attention(query, key, value, mask, dropout_rate=0.0, seed=None):
    """Computes softmax(QKᵀ/√D + mask)V and the probabilities.

    Args:
        query, key, value: `[B, N, T, D]`, and twice `[B, N, S, D]`.
        mask: bool, broadcastable to `[B, N, T, S]`: which keys a query attends to.
        dropout_rate, seed: The dropout of the probabilities; the seed is a scalar int64.

    Returns:
        `[B, N, T, D]`, and the probabilities `[B, N, T, S]` before the dropout.
    """
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [B, N, T, S]
    return weighted_values(scores * query.shape[-1] ** -0.5, value, mask, dropout_rate, seed)


def weighted_values(scores, value, mask, dropout_rate=0.0, seed=None):
    """Computes softmax(scores + mask)V and the probabilities; see `dot_product_attention`.

    `scores` are float32 `[B, N, T, S]`.
    """
    # The softmax is computed in float32 for every compute dtype.
    scores = tf.where(mask, scores, MASKED_SCORE)
    probabilities = tf.cast(tf.nn.softmax(scores), value.dtype)
    weights = probabilities
    if dropout_rate:
        weights = stateless_dropout(weights, dropout_rate, seed)
    return tf.matmul(weights, value), probabilities


def split_heads(batch: tf.Tensor, parts: int, heads: tuple[int, int]) -> list[tf.Tensor]:
    """Returns the parts of `[B, T, parts * N * D]`, each `[B, N, T, D]`; `heads` are N and D."""
    values = tf.reshape(batch, [*tf.unstack(tf.shape(batch)[:2]), parts, *heads])
    return tf.unstack(tf.transpose(values, [2, 0, 3, 1, 4]))  # [B, T, parts, N, D] -> parts


def padded_attention(qkv, layout: TokenLayout, rule: AttentionRule, dropout_rate, seed):
    """Computes the self-attention of a padded layout and the probabilities.

    `[B * T, 3, n, D]` -> `[B * T, n, D]`, `[B, n, T, T]`.
    """
    batch, length = tf.unstack(tf.shape(layout.padding_mask))
    num_heads, head_size = qkv.shape[2:]
    qkv = tf.reshape(qkv, [batch, length, 3 * num_heads * head_size])
    qkv = split_heads(qkv, 3, (num_heads, head_size))  # 3 of [B, n, T, D]
    query, key = layout.places()  # [B, 1, T, 1], [B, 1, 1, T]
    if rule.rotation is not None:
        places = tf.maximum(query[..., 0], 0)  # [B, 1, T]; -1 is padding before the first token
        rotation = tf.gather(rule.rotation, places)  # [B, 1, T, S]
        qkv[:2] = [rotated(part, rotation) for part in qkv[:2]]
    is_attended = rule.attended_rows
    if is_attended is not None:
        is_attended = tf.reshape(is_attended, [batch, 1, 1, length])
    mask = layout.same_sequence() & rule.sees(query, key, is_attended)  # [B, 1, 1 or T, T]
    scores = rule.scores(*qkv[:2], query[:, 0], key[:, 0])  # [B, n, T, T]
    context, probabilities = weighted_values(scores, qkv[2], mask, dropout_rate, seed)
    context = tf.transpose(context, [0, 2, 1, 3])  # [B, n, T, D] -> [B, T, n, D]
    return tf.reshape(context, [-1, num_heads, head_size]), probabilities


def cached_attention(query, *known):
    """Computes the attention of one token per sequence to known keys and values: `[n, N * D]`.

    Args:
        query: `[n, N, D]`.
        *known: What the tokens attend to, in one or more parts. A part is keys and values, both
            `[m, N, S, D]`, and a bool mask `[m, S]` or `[S]`. m can be a divisor of n: then
            sequence i attends to entry `i // (n // m)`.
    """
    num_heads, head_size = query.shape[1:]
    scores = [_scores(query, key, mask) for key, _, mask in known]  # [n, N, S] each
    lengths = [tf.shape(part)[2] for part in scores]
    # The softmax is computed in float32 for every compute dtype.
    probabilities = tf.cast(tf.nn.softmax(tf.concat(scores, axis=2)), query.dtype)
    parts = tf.split(probabilities, lengths, axis=2)
    context = [_context(part, value) for part, (_, value, _) in zip(parts, known)]
    return tf.reshape(tf.add_n(context), [-1, num_heads * head_size])  # [n, N, D] -> [n, N * D]


def _scores(query, key, mask):
    """Returns the scores of keys `[m, N, S, D]`: `[n, N, D]` -> float32 `[n, N, S]`."""
    # For a single query, this is faster than the product of the queries and the transposed keys.
    scores = tf.matmul(key, _by_memory(query, key), transpose_b=True)  # [m, N, S, K]
    scores = tf.cast(scores, tf.float32) * query.shape[2] ** -0.5
    mask = mask[..., tf.newaxis, :, tf.newaxis]  # [m, 1, S, 1] or [1, S, 1]
    scores = tf.where(mask, scores, MASKED_SCORE)
    scores = tf.transpose(scores, [0, 3, 1, 2])  # [m, N, S, K] -> [m, K, N, S]
    return tf.reshape(scores, [-1, query.shape[1], tf.shape(key)[2]])  # -> [n, N, S]


def _context(probabilities, value):
    """Returns the weighted sums of values `[m, N, S, D]`: `[n, N, S]` -> `[n, N, D]`."""
    context = tf.matmul(_by_memory(probabilities, value), value)  # [m, N, K, D]
    context = tf.transpose(context, [0, 2, 1, 3])  # -> [m, K, N, D]
    return tf.reshape(context, [-1, *value.shape[1::2]])  # -> [n, N, D]


def _by_memory(values, memory):
    """Groups sequences by the row of the memory: `[n, N, X]`, `[m, ...]` -> `[m, N, K, X]`."""
    shape = tf.shape(values)
    grouped = tf.reshape(values, [tf.shape(memory)[0], -1, values.shape[1], shape[2]])
    return tf.transpose(grouped, [0, 2, 1, 3])  # [m, K, N, X] -> [m, N, K, X]
