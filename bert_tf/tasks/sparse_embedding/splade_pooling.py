"""From the vectors of tokens to a weight for every piece of the vocabulary.

Glossary: `B` texts, `T` sequence length, `H` hidden size, `V` vocabulary, `R` real tokens.

Reference: Formal et al. 2021 (arXiv 2109.10086), equations 1 and 2; sentence-transformers,
`SpladePooling`.
"""

from collections.abc import Callable

import tensorflow as tf

from bert_tf.ops.native import needs_static_shapes

POOLINGS = ("max", "sum")
TERM_ACTIVATIONS = ("relu", "log1p_relu")
# Tokens whose logits are in memory at a time where no gradient is computed: 120 MB for the
# 30,522 pieces of BERT's vocabulary.
ROWS_AT_ONCE = 1024


def splade_pooling(
    states: tf.Tensor,
    padding_mask: tf.Tensor,
    logits_of: Callable[[tf.Tensor], tf.Tensor],
    size: int,
    pooling: str,
    activation: str,
    training: bool,
) -> tf.Tensor:
    """Returns the maximum or the sum of log(1 + relu(logits)) over the real tokens of each text.

    Args:
        states: `[B, T, H]`.
        padding_mask: bool `[B, T]`.
        logits_of: A function from rows `[R, H]` to logits over the vocabulary, `[R, V]`.
        size: V.
        pooling: "max" or "sum".
        activation: "relu", or "log1p_relu" for log(1 + log(1 + relu(logits))).
        training: Whether all logits are computed at once, as a gradient needs all of them; else
            those of `ROWS_AT_ONCE` tokens at a time, except for XLA.

    Returns:
        float32 `[B, V]`; zeros for a text without tokens.
    """
    is_max = pooling == "max"

    def weights_of(logits):
        weights = tf.math.log1p(tf.nn.relu(logits))
        return tf.math.log1p(weights) if activation == "log1p_relu" else weights

    batch, length = tf.unstack(tf.shape(padding_mask))
    if needs_static_shapes():
        logits = tf.cast(logits_of(tf.reshape(states, [-1, states.shape[-1]])), tf.float32)
        logits = tf.reshape(logits, [batch, length, size])  # [B * T, V] -> [B, T, V]
        logits = tf.where(padding_mask[:, :, tf.newaxis], logits, 0.0)  # 0 has no weight
        if is_max:  # the weights grow with the logits
            return weights_of(tf.reduce_max(logits, axis=1))
        return tf.reduce_sum(weights_of(logits), axis=1)

    rows = tf.boolean_mask(states, padding_mask)  # [B, T, H] -> [R, H]
    texts = tf.cast(tf.where(padding_mask)[:, 0], tf.int32)  # [R], the text of a row

    def add(pooled, part):
        logits = tf.cast(logits_of(rows[part]), tf.float32)
        if is_max:
            best = tf.math.unsorted_segment_max(logits, texts[part], batch)  # [R, V] -> [B, V]
            both = tf.maximum(pooled, best)
        else:
            both = pooled + tf.math.unsorted_segment_sum(weights_of(logits), texts[part], batch)
        return tf.ensure_shape(both, pooled.shape)

    pooled = tf.zeros([batch, size])
    if training:
        pooled = add(pooled, slice(None))
    else:
        _, pooled = tf.while_loop(
            lambda start, _: start < tf.shape(rows)[0],
            lambda start, pooled: (
                start + ROWS_AT_ONCE,
                add(pooled, slice(start, start + ROWS_AT_ONCE)),
            ),
            (0, pooled),
            parallel_iterations=1,
        )
    return weights_of(pooled) if is_max else pooled
