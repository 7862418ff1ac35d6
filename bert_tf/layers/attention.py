"""Multi-head self-attention on rows: one matmul for query, key and value, then attention."""

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, require
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dot_product_attention import cached_attention, dot_product_attention
from bert_tf.layers.dropout import next_seed
from bert_tf.layers.key_values import KeyValueCache
from bert_tf.layers.observed_inputs import observe
from bert_tf.layers.quantization import BFLOAT16, FLOAT, INT8
from bert_tf.layers.token_layout import TokenLayout


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSelfAttention(ConfiguredLayer):
    """Attention of every token to the tokens of its own sequence, before the output projection.

    With a packed layout, `ops.varlen_attention` computes it without padding and without a
    `[B, N, T, T]` tensor. With a padded layout, it is computed with stock TensorFlow ops.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        num_heads: n, the number of heads of this block. None means N, all heads of the
            configuration.

    Attributes:
        precision: What a packed layout computes in: "float", or for inference "bfloat16" (the
            matrix products) or "int8" (`ops.quantized_attention`; with a prefix, "float").

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        return_probabilities: Whether to also return the attention probabilities. Only for a padded
            layout.
        dropout_key: Seed of the dropout, a scalar int64. None draws a seed.
        head_mask: Factors of the outputs of the heads, float `[B, n]`. None means 1.

    Returns:
        `[R, n * D]`, or a tuple with the probabilities `[B, n, T, T]` if `return_probabilities`.

    Raises:
        UserError: If `return_probabilities` is True and the layout is packed.

    Example:
        >>> from bert_tf.layers.token_layout import TokenLayout
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4)
        >>> layout = TokenLayout.padded(tf.constant([[True, True, False]]))
        >>> attention = bert_tf.layers.BertSelfAttention(config)
        >>> rows, probabilities = attention(
        ...     tf.ones([3, 32]), layout=layout, return_probabilities=True
        ... )
        >>> rows.shape, probabilities.shape
        (TensorShape([3, 32]), TensorShape([1, 4, 3, 3]))

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2; google-research/bert
    modeling.py, `attention_layer`.
    """

    def __init__(self, config: BertConfig | dict, num_heads: int | None = None, **kwargs):
        super().__init__(config, **kwargs)
        self.num_heads = self.config.num_attention_heads if num_heads is None else num_heads
        # The columns of the kernel are ordered as [query | key | value], each [n, D].
        units = 3 * self.num_heads * self.config.head_size
        self.query_key_value = self.make_dense(units, "query_key_value")
        self.dropout_rate = self.config.attention_probs_dropout_prob
        self.seed_generator = keras.random.SeedGenerator()
        self.precision = FLOAT

    def build(self, input_shape=None):
        self.query_key_value.build([None, self.config.hidden_size])
        self.built = True

    def draw_seed(self) -> tf.Tensor | None:
        """Returns a new seed for the dropout, or None if there is no dropout."""
        return next_seed(self.seed_generator) if self.dropout_rate else None

    def call(
        self,
        rows,
        layout: TokenLayout,
        training=False,
        return_probabilities=False,
        dropout_key=None,
        head_mask=None,
    ):
        rule = "must be False for a packed layout, whose attention stores no probabilities; use "
        fits = not (return_probabilities and layout.is_packed)
        require(fits, f"{rule}`TokenLayout.padded`", UserError, return_probabilities=True)
        heads = [self.num_heads, self.config.head_size]
        qkv = tf.reshape(self.query_key_value(rows), [-1, 3, *heads])  # [R, 3nD] -> [R, 3, n, D]
        dropout_rate = self.dropout_rate if training else 0.0
        if dropout_rate and dropout_key is None:
            dropout_key = self.draw_seed()
        probabilities = None
        observe(self, qkv, layout)
        compute_dtype = self.precision if self.precision == BFLOAT16 else None
        if layout.prefix_rows is not None:
            context = layout.prefix_rows.attention(qkv, dropout_rate, dropout_key, compute_dtype)
        elif layout.is_packed and self.precision == INT8:
            context = ops.quantized_attention(
                qkv, layout.row_splits, **layout.row_attention(qkv.dtype)
            )
        elif layout.is_packed:
            context = ops.varlen_attention(
                qkv,
                layout.row_splits,
                dropout_rate,
                dropout_key,
                compute_dtype=compute_dtype,
                **layout.row_attention(qkv.dtype),
            )
        else:
            context, probabilities = _padded_attention(qkv, layout, dropout_rate, dropout_key)
        if head_mask is not None:
            context = _weighted_heads(context, head_mask, layout)
        context = tf.reshape(context, [-1, heads[0] * heads[1]])  # [R, n, D] -> [R, n * D]
        return (context, probabilities) if return_probabilities else context

    def empty_cache(self, num_rows, max_length: int) -> KeyValueCache:
        """Returns what `step` keeps of sequences of at most `max_length` tokens, yet none."""
        sizes = self.num_heads, self.config.head_size
        return KeyValueCache.empty(num_rows, max_length, *sizes, self.compute_dtype)

    def step(self, rows, position, cache: KeyValueCache, *prefix):
        """Computes the attention of one new token per sequence, to itself and to earlier tokens.

        Args:
            rows: `[n, H]`, the new tokens.
            position: A scalar int32, their position.
            cache: The keys and the values of the sequences so far.
            *prefix: Keys, values and mask of tokens before the first in the cache, as
                `cached_attention` takes them.

        Returns:
            `[n, N * D]`, and the cache with the keys and values of the new tokens.
        """
        heads = [self.num_heads, self.config.head_size]
        qkv = tf.reshape(self.query_key_value(rows), [-1, 3, *heads])  # [n, 3ND] -> [n, 3, N, D]
        query, key, value = tf.unstack(qkv, axis=1)  # 3 of [n, N, D]
        cache = cache.append(position, key, value)
        known = [prefix] if prefix else []
        return cached_attention(query, *known, (*cache, cache.mask(position))), cache

    def keep_heads(self, places: list[int]) -> None:
        """Removes the weights of all other heads permanently.

        Args:
            places: The indices of the heads to keep, among the n heads that the block has now.
        """
        dense = self.query_key_value

        def kept(values):
            """`[..., 3 * n * D]` -> `[..., 3 * len(places) * D]`."""
            heads = tf.reshape(values, [-1, 3, self.num_heads, self.config.head_size])
            return tf.reshape(tf.gather(heads, places, axis=2), [*values.shape[:-1], -1])

        dense.replace(*[kept(tf.convert_to_tensor(v)) for v in (dense.kernel, dense.bias)])
        self.num_heads = len(places)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}


def _weighted_heads(context, head_mask, layout):
    """Multiplies the heads of each row `[R, n, D]` by the factors of its example `[B, n]`.

    The product is computed in float32.
    """
    shape = [*tf.unstack(tf.shape(layout.padding_mask)), context.shape[1]]
    factors = tf.cast(head_mask, tf.float32)[:, tf.newaxis]  # [B, n] -> [B, 1, n]
    factors = layout.to_rows(tf.broadcast_to(factors, shape))  # [B, T, n] -> [R, n]
    product = tf.cast(context, tf.float32) * factors[:, :, tf.newaxis]
    return tf.cast(product, context.dtype)


def _padded_attention(qkv, layout, dropout_rate, seed):
    """Computes softmax(QKᵀ/√D + mask)V and the probabilities.

    `[B * T, 3, n, D]` -> `[B * T, n, D]`, `[B, n, T, T]`.
    """
    batch, length = tf.unstack(tf.shape(layout.padding_mask))
    num_heads, head_size = qkv.shape[2:]
    heads = tf.reshape(qkv, [batch, length, 3, num_heads, head_size])
    query, key, value = tf.unstack(  # [B, T, 3, n, D] -> 3 of [B, n, T, D]
        tf.transpose(heads, [2, 0, 3, 1, 4])
    )
    mask, bias = layout.attention_mask(), layout.score_bias()
    context, probabilities = dot_product_attention(
        query, key, value, mask, dropout_rate, seed, bias
    )
    context = tf.transpose(context, [0, 2, 1, 3])  # [B, n, T, D] -> [B, T, n, D]
    return tf.reshape(context, [-1, num_heads, head_size]), probabilities
