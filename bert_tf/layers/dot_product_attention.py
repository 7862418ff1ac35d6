"""Scaled dot-product attention in stock TensorFlow ops, for padded batches and for caches.

Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1.
"""

import tensorflow as tf

from bert_tf.layers.dropout import stateless_dropout

# Replaces the scores of padding. google-research/bert adds -10000 instead. This value is so far
# below any score that padding gets a probability of exactly zero, and it is in float32's range.
MASKED_SCORE = -1e9


def dot_product_attention(query, key, value, mask, dropout_rate=0.0, seed=None):
    """Computes softmax(QKᵀ/√D + mask)V and the probabilities.

    Args:
        query: `[B, N, T, D]`.
        key: `[B, N, S, D]`.
        value: `[B, N, S, D]`.
        mask: bool, broadcastable to `[B, N, T, S]`: which keys a query attends to.
        dropout_rate: Rate of the dropout of the probabilities.
        seed: Seed of the dropout, a scalar int64. Required if the rate is not 0.

    Returns:
        `[B, N, T, D]`, and the probabilities `[B, N, T, S]` before the dropout.
    """
    # The softmax is computed in float32 for every compute dtype.
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [B, N, T, S]
    scores *= query.shape[-1] ** -0.5
    scores = tf.where(mask, scores, MASKED_SCORE)
    probabilities = tf.cast(tf.nn.softmax(scores), query.dtype)
    weights = probabilities
    if dropout_rate:
        weights = stateless_dropout(weights, dropout_rate, seed)
    return tf.matmul(weights, value), probabilities


def cached_attention(query, key, value, mask):
    """Computes the attention of one query per sequence: `[n, N, D]` -> `[n, N * D]`.

    Args:
        query: `[n, N, D]`.
        key: `[n, N, S, D]`.
        value: `[n, N, S, D]`.
        mask: bool `[n, S]`: which keys the query attends to.
    """
    mask = mask[:, tf.newaxis, tf.newaxis]  # [n, 1, 1, S]
    context, _ = dot_product_attention(query[:, :, tf.newaxis], key, value, mask)  # [n, N, 1, D]
    return tf.reshape(context, [-1, query.shape[1] * query.shape[2]])  # -> [n, N * D]
