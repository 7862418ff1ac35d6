"""Multi-head self-attention on rows: one matmul for query, key and value, then attention."""

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.config import BertConfig
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout_seed import DropoutSeed
from bert_tf.layers.token_layout import TokenLayout

# Added to the scores of padding. google-research/bert adds -10000; this is far enough below any
# score that padding gets a probability of exactly zero, and far from float32's limit.
MASKED_SCORE = -1e9


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSelfAttention(keras.layers.Layer):
    """Attention of every token to the tokens of its own sequence, before the output projection.

    On a packed layout the tokens go to `ops.varlen_attention`: padding costs nothing and no
    `[B, N, T, T]` tensor exists. On a padded layout it is computed the plain way.

    Args:
        config: `BertConfig` or the dictionary of its `to_dict`.

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        return_probabilities: Whether to return the attention probabilities too; for a padded
            layout only.
        dropout_key: Seed of the dropout, a scalar int64; None draws one.

    Returns:
        `[R, H]`, or with `return_probabilities` a pair with `[B, N, T, T]`.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2; google-research/bert
    modeling.py, `attention_layer`.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig(**config)
        # The columns of the kernel are ordered [query | key | value], each [N, D].
        self.query_key_value = Dense(
            3 * self.config.hidden_size,
            self.config.initializer_range,
            dtype=self.dtype_policy,
            name="query_key_value",
        )
        self.dropout_rate = self.config.attention_probs_dropout_prob
        self._dropout_seed = DropoutSeed()
        self.seed_generator = self._dropout_seed.generator

    def build(self, input_shape=None):
        self.query_key_value.build([None, self.config.hidden_size])
        self.built = True

    def draw_seed(self) -> tf.Tensor | None:
        """A new seed for the dropout; None if there is no dropout."""
        return self._dropout_seed.next() if self.dropout_rate else None

    def call(
        self,
        rows,
        layout: TokenLayout,
        training=False,
        return_probabilities=False,
        dropout_key=None,
    ):
        config = self.config
        qkv = tf.reshape(  # [R, 3H] -> [R, 3, N, D]
            self.query_key_value(rows), [-1, 3, config.num_attention_heads, config.head_size]
        )
        dropout_rate = self.dropout_rate if training else 0.0
        if dropout_rate and dropout_key is None:
            dropout_key = self.draw_seed()
        if layout.is_packed:
            context = ops.varlen_attention(
                qkv, layout.row_splits, dropout_rate, dropout_key, **layout.row_attention()
            )
            return tf.reshape(context, [-1, config.hidden_size])  # [R, N, D] -> [R, H]
        context, probabilities = _padded_attention(qkv, layout, dropout_rate, dropout_key)
        return (context, probabilities) if return_probabilities else context

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


def _padded_attention(qkv, layout, dropout_rate, seed):
    """softmax(QKᵀ/√D + mask)V on `[B * T, 3, N, D]`; returns `[B * T, H]` and `[B, N, T, T]`."""
    batch, length = tf.unstack(tf.shape(layout.padding_mask))
    num_heads, head_size = qkv.shape[2:]
    heads = tf.reshape(qkv, [batch, length, 3, num_heads, head_size])
    query, key, value = tf.unstack(  # [B, T, 3, N, D] -> 3 of [B, N, T, D]
        tf.transpose(heads, [2, 0, 3, 1, 4])
    )
    # Softmax in float32 whatever the compute dtype.
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [B, N, T, T]
    scores *= head_size**-0.5
    scores = tf.where(layout.attention_mask(), scores, MASKED_SCORE)
    probabilities = tf.cast(tf.nn.softmax(scores), qkv.dtype)
    weights = probabilities
    if dropout_rate:
        weights = tf.nn.experimental.stateless_dropout(
            weights, dropout_rate, seed=tf.stack([seed, tf.zeros([], tf.int64)]), rng_alg="philox"
        )
    context = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])  # -> [B, T, N, D]
    return tf.reshape(context, [-1, num_heads * head_size]), probabilities
