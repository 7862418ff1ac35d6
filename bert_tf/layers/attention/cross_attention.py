"""Attention of the rows of a decoder to the rows of an encoder, the memory.

Glossary, next to that of the package: `S` length of the memory's sequences, `M` rows of the memory.
"""

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.config import BertConfig
from bert_tf.layers.attention.dot_product_attention import (
    cached_attention,
    dot_product_attention,
    split_heads,
)
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dropout import new_seed_generator, next_seed


@keras.saving.register_keras_serializable(package="bert_tf")
class BertCrossAttention(ConfiguredLayer):
    """Attention of every token to the memory of its sequence, before the output projection.

    With packed layouts, `ops.varlen_cross_attention` computes it without padding and without a
    `[B, N, T, S]` tensor. With padded layouts, it is computed with stock TensorFlow ops.

    Args:
        config: The `BertConfig` of the decoder, or its `to_dict()`. The memory has the same H.

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        memory: `[M, H]`, the rows of the encoder.
        memory_layout: The `TokenLayout` of the memory, packed if the other is.

    Returns:
        `[R, N * D]`.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4)
        >>> attention = bert_tf.layers.BertCrossAttention(config)
        >>> layout = TokenLayout.padded(tf.constant([[True, True]]))
        >>> memory = {"memory": tf.ones([3, 32])}
        >>> memory["memory_layout"] = TokenLayout.padded(tf.constant([[True, True, False]]))
        >>> attention(tf.ones([2, 32]), layout=layout, **memory).shape
        TensorShape([2, 32])

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.3.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        self.query = self.make_dense(self.config.hidden_size, "query")
        # The columns of the kernel are ordered as [key | value], each [N, D].
        self.key_value = self.make_dense(2 * self.config.hidden_size, "key_value")
        self.dropout_rate = self.config.attention_probs_dropout_prob
        self.seed_generator = new_seed_generator()
        self.heads = (self.config.num_attention_heads, self.config.head_size)

    def build(self, input_shape=None):
        self.query.build([None, self.config.hidden_size])
        self.key_value.build([None, self.config.hidden_size])
        self.built = True

    def call(self, rows, layout: TokenLayout, memory, memory_layout: TokenLayout, training=False):
        query, key_value = self.query(rows), self.key_value(memory)  # [R, ND], [M, 2ND]
        dropout_rate = self.dropout_rate if training else 0.0
        seed = next_seed(self.seed_generator) if dropout_rate else None
        if layout.row_splits is not None:
            context = ops.varlen_cross_attention(
                tf.reshape(query, [-1, *self.heads]),  # [R, ND] -> [R, N, D]
                tf.reshape(key_value, [-1, 2, *self.heads]),  # [M, 2ND] -> [M, 2, N, D]
                layout.row_splits,
                memory_layout.row_splits,
                dropout_rate,
                seed,
            )
        else:
            (query,) = split_heads(layout.to_batch(query), 1, self.heads)  # -> [B, N, T, D]
            key, value = split_heads(memory_layout.to_batch(key_value), 2, self.heads)
            mask = memory_layout.padding_mask[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, S]
            context, _ = dot_product_attention(query, key, value, mask, dropout_rate, seed)
            context = tf.transpose(context, [0, 2, 1, 3])  # [B, N, T, D] -> [B, T, N, D]
        return tf.reshape(context, [-1, self.config.hidden_size])  # -> [R, N * D]

    def project(self, memory) -> list[tf.Tensor]:
        """Returns the keys and the values of a memory `[B, S, H]` for `step`, `[B, N, S, D]`."""
        batch, length = tf.unstack(tf.shape(memory)[:2])
        projected = self.key_value(tf.reshape(memory, [-1, memory.shape[-1]]))  # -> [B * S, 2ND]
        projected = tf.reshape(projected, [batch, length, projected.shape[-1]])
        return split_heads(projected, 2, self.heads)

    def step(self, rows, key, value, memory_mask):
        """Computes the attention of one token per sequence: `[n, H]` -> `[n, N * D]`.

        `key` and `value` `[B, N, S, D]` are what `project` returns; n is a multiple of B. The mask,
        bool `[B, S]`, is True for real tokens.
        """
        query = tf.reshape(self.query(rows), [-1, *self.heads])  # [n, H] -> [n, N, D]
        return cached_attention(query, (key, value, memory_mask))
