"""Multi-head self-attention on rows: one matmul for query, key and value, then attention."""

import dataclasses
import math
from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.base import keras_compat
from bert_tf.config import DISENTANGLED, BertConfig
from bert_tf.errors import user_error
from bert_tf.layers.attention.dot_product_attention import cached_attention, padded_attention
from bert_tf.layers.attention.key_values import KeyValueCache
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dropout import new_seed_generator, next_seed
from bert_tf.layers.kernels import Epilogue
from bert_tf.layers.quantization import BFLOAT16, FLOAT, INT8
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionProbes:
    """The optional argument of an encoder and its blocks; without it, nothing is observed."""

    # Factors of the outputs of the heads: float [B, L, N] for an encoder, pruned heads included,
    # and [B, n] for one block. None means 1.
    head_mask: tf.Tensor | None = None
    # To which each block appends its attention probabilities [B, n, T, T], of padded layouts only.
    probabilities: list[tf.Tensor] | None = None
    # Called by each block with its `BertSelfAttention`, the queries, keys and values [R, 3, n, D],
    # the `TokenLayout` and the `AttentionRule`.
    observe: Callable[..., None] | None = None

    def of_block(self, index: int, heads: list[int]) -> "AttentionProbes":
        """Returns the probes of one block, which has the given ones of the N heads."""
        if self.head_mask is None:
            return self
        head_mask = tf.gather(self.head_mask[:, index], heads, axis=1)  # [B, L, N] -> [B, n]
        return dataclasses.replace(self, head_mask=head_mask)

    def keep(self, probabilities: tf.Tensor | None) -> None:
        """Keeps the probabilities of a block if they are asked for.

        Raises:
            UserError: If they are, and there are none because the layout is packed.
        """
        if self.probabilities is None:
            return
        if probabilities is None:
            expected = "be padded if `probes` keeps probabilities: packed attention stores none"
            raise user_error("`layout`", expected, "a packed layout. Use `TokenLayout.padded`.")
        self.probabilities.append(probabilities)

    def weighted(self, context: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
        """Multiplies the heads of each row `[R, n, D]` by the factors of its example `[B, n]`.

        The product is computed in float32.
        """
        if self.head_mask is None:
            return context
        shape = [*tf.unstack(tf.shape(layout.padding_mask)), context.shape[1]]
        factors = tf.cast(self.head_mask, tf.float32)[:, tf.newaxis]  # [B, n] -> [B, 1, n]
        factors = layout.to_rows(tf.broadcast_to(factors, shape))  # [B, T, n] -> [R, n]
        product = tf.cast(context, tf.float32) * factors[:, :, tf.newaxis]
        return tf.cast(product, context.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSelfAttention(ConfiguredLayer):
    """Attention of every token to tokens of its own sequence, before the output projection.

    With a packed layout, `ops.varlen_attention` computes it without padding and without a
    `[B, N, T, T]` tensor. With a padded layout, it is computed with stock TensorFlow ops.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        num_heads: n, the number of heads of this block. None means N, all heads of the
            configuration.

    Attributes:
        query_value_bias: `[2 * n * D]`, the bias of queries and values if keys have none, or None.
        precision: The precision for packed layouts: "float", or for inference "bfloat16" (for the
            matrix products) or "int8" (`ops.quantized_attention`, except with
            `rule.attended_rows` or `rule.attended_blocks`).

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        rule: The `ops.AttentionRule`: which tokens of its sequence a token attends to.
        dropout_seed: Seed of the dropout, a scalar int64. None draws a seed.
        probes: The `AttentionProbes`, or None.
        distances: `[S, H]`, the vectors of distances of disentangled attention, or None. Their
            queries and keys are computed as those of tokens with `config.share_att_key`, else by
            `distance_query` and `distance_key`.

    Returns:
        `[R, n * D]`.

    Raises:
        UserError: If `probes` asks for probabilities and the layout is packed.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4)
        >>> layout = TokenLayout.padded(tf.constant([[True, True, False]]))
        >>> attention = bert_tf.layers.BertSelfAttention(config)
        >>> attention(tf.ones([3, 32]), layout=layout).shape
        TensorShape([3, 32])

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2; google-research/bert
    modeling.py, `attention_layer`.
    """

    def __init__(self, config: BertConfig | dict, num_heads: int | None = None, **kwargs):
        super().__init__(config, **kwargs)
        self.num_heads = self.config.num_attention_heads if num_heads is None else num_heads
        self.head_size = self.config.head_size
        # The columns of the kernel are ordered as [query | key | value], each [n, D]; keys and
        # values are [K, D] if groups of heads share them.
        groups = self.config.num_key_value_heads or self.num_heads  # K
        units = (self.num_heads + 2 * groups) * self.head_size
        bias = self.config.attention_bias
        self.has_key_bias = bias and self.config.key_bias
        self.query_key_value = self.make_dense(units, "query_key_value", self.has_key_bias)
        self.query_value_bias = self.distance_query = self.distance_key = None
        if self.config.position_embedding_type == DISENTANGLED and not self.config.share_att_key:
            units = self.num_heads * self.head_size
            self.distance_query = self.make_dense(units, "distance_query", bias)
            self.distance_key = self.make_dense(units, "distance_key", self.has_key_bias)
        self.dropout_rate = self.config.attention_probs_dropout_prob
        self.seed_generator = new_seed_generator()
        self.precision = FLOAT

    def build(self, input_shape=None):
        hidden = [None, self.config.hidden_size]
        self.query_key_value.build(hidden)
        if self.config.attention_bias and not self.has_key_bias:
            self._build_query_value_bias()
        for dense in filter(None, (self.distance_query, self.distance_key)):
            dense.build(hidden)
        self.built = True

    def _build_query_value_bias(self):
        shape = [2 * self.num_heads * self.head_size]
        self.query_value_bias = self.add_weight(name="bias", shape=shape, initializer="zeros")

    def call(
        self,
        rows,
        layout: TokenLayout,
        rule: AttentionRule = EVERY_TOKEN,
        training=False,
        dropout_seed=None,
        probes: AttentionProbes | None = None,
        distances: tf.Tensor | None = None,
    ):
        bias = None
        if self.query_value_bias is not None:
            query, value = tf.split(tf.convert_to_tensor(self.query_value_bias), 2)
            bias = tf.concat([query, tf.zeros_like(query), value], axis=0)  # [3nD]
        qkv = self.query_key_value.apply(rows, Epilogue(bias))  # [R, H] -> [R, 3nD]
        if self.config.num_key_value_heads:
            qkv = self._repeated(qkv)  # [R, (n + 2 K) D] -> [R, 3nD]
        qkv = tf.reshape(qkv, [-1, 3, self.num_heads, self.head_size])  # -> [R, 3, n, D]
        dropout_rate = self.dropout_rate if training else 0.0
        if dropout_rate and dropout_seed is None:
            dropout_seed = next_seed(self.seed_generator)
        probabilities = None
        if distances is not None:
            rule = dataclasses.replace(rule, distance_vectors=self._of_distances(distances))
        if layout.row_splits is None:
            context, probabilities = padded_attention(qkv, layout, rule, dropout_rate, dropout_seed)
        else:
            if rule.distance_bias is not None:
                bias = tf.cast(rule.distance_bias, qkv.dtype)
                rule = dataclasses.replace(rule, distance_bias=bias)
            is_dense = rule.attended_rows is None and rule.attended_blocks is None
            if self.precision == INT8 and is_dense and rule.distance_vectors is None:
                context = ops.quantized_attention(qkv, layout.row_splits, rule)
            else:
                compute_dtype = BFLOAT16 if self.precision == BFLOAT16 else None
                context = ops.varlen_attention(
                    qkv,
                    layout.row_splits,
                    dropout_rate,
                    dropout_seed,
                    rule,
                    compute_dtype,
                    max_length=layout.padding_mask.shape[1] or None,
                )
        if probes is not None:
            if probes.observe is not None:
                probes.observe(self, qkv, layout, rule)
            probes.keep(probabilities)
            context = probes.weighted(context, layout)
        return tf.reshape(context, [-1, self.num_heads * self.head_size])  # -> [R, n * D]

    def _of_distances(self, distances: tf.Tensor) -> tf.Tensor:
        """Returns the queries and keys of vectors of distances: `[S, H]` -> `[S, 2, n, D]`."""
        if self.distance_key is None:
            vectors = self.query_key_value.apply(distances, Epilogue())  # [S, 3nD]
        else:
            parts = [dense(distances) for dense in (self.distance_query, self.distance_key)]
            vectors = tf.concat(parts, axis=1)  # [S, 2nD]
        heads = [self.num_heads, self.head_size]
        return tf.reshape(vectors, [-1, vectors.shape[1] // math.prod(heads), *heads])[:, :2]

    def _repeated(self, qkv: tf.Tensor) -> tf.Tensor:
        """Repeats shared keys and values for their heads: `[R, (n + 2 K) D]` -> `[R, 3nD]`."""
        groups = self.config.num_key_value_heads
        heads = tf.reshape(qkv, [-1, self.num_heads + 2 * groups, self.head_size])
        query, *others = tf.split(heads, [self.num_heads, groups, groups], axis=1)
        repeated = [tf.repeat(one, self.num_heads // groups, axis=1) for one in others]
        return tf.reshape(
            tf.stack([query, *repeated], axis=1), [-1, 3 * query.shape[1] * query.shape[2]]
        )

    def empty_cache(self, num_rows, max_length: int) -> KeyValueCache:
        """Returns an empty cache for `step`, for sequences of at most `max_length` tokens."""
        return KeyValueCache.empty(
            num_rows, max_length, self.num_heads, self.head_size, self.compute_dtype
        )

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
        heads = [self.num_heads, self.head_size]
        qkv = tf.reshape(self.query_key_value(rows), [-1, 3, *heads])  # [n, 3ND] -> [n, 3, N, D]
        query, key, value = tf.unstack(qkv, axis=1)  # 3 of [n, N, D]
        cache = cache.append(position, key, value)
        known = [prefix] if prefix else []
        return cached_attention(query, *known, (*cache, cache.mask(position))), cache

    def keep_heads(self, places: list[int]) -> None:
        """Removes the weights of all other heads permanently; `places` are among the n of now."""
        width = self.num_heads * self.head_size

        def kept(variable):
            """`[..., k * n * D]` -> `[..., k * len(places) * D]`; None -> None."""
            if variable is None:
                return None
            values = tf.convert_to_tensor(variable)
            sizes = [-1, values.shape[-1] // width, self.num_heads, self.head_size]
            heads = tf.gather(tf.reshape(values, sizes), places, axis=2)
            return tf.reshape(heads, [*values.shape[:-1], -1])

        for dense in filter(None, (self.query_key_value, self.distance_query, self.distance_key)):
            dense.replace(kept(dense.kernel), kept(dense.bias))
        before, bias = self.query_value_bias, kept(self.query_value_bias)
        self.num_heads = len(places)
        if bias is not None:
            keras_compat.remove_variable(self, "query_value_bias")
            with keras_compat.unlocked(self):
                self._build_query_value_bias()
            self.query_value_bias.assign(bias)
            self.query_value_bias.trainable = before.trainable
