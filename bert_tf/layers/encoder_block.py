"""One Transformer encoder block: attention and feed-forward, each with residual and LayerNorm."""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers.activation import ACTIVATIONS
from bert_tf.layers.attention.self_attention import AttentionProbes, BertSelfAttention
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import new_seed_generator, next_seed, stateless_dropout
from bert_tf.layers.kernels import Epilogue
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenConvolution(ConfiguredLayer):
    """A convolution over the tokens of each sequence, a residual and LayerNorm.

    A token sees the `config.conv_kernel_size` tokens around it, itself in the middle; before the
    first and after the last token of its sequence, it sees zeros. The kernel is that of a dense
    layer on these tokens, one after the other.

        y[t] = LayerNorm(residual[t] + act(dropout(bias + sum_d W[d] x[t + d])))

    Args:
        config: A `BertConfig`, or its `to_dict()`.

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        residual: `[R, H]`.
        dropout_seed: Seed of the dropout, a scalar int64. None draws a seed.

    Returns:
        `[R, H]`.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> from bert_tf.layers.encoder_block import TokenConvolution
        >>> config = bert_tf.BertConfig(hidden_size=8, num_attention_heads=2, conv_kernel_size=3)
        >>> layout = TokenLayout.packed(tf.constant([[True, True, False]]))
        >>> rows = tf.ones([2, 8])
        >>> TokenConvolution(config)(rows, layout=layout, residual=rows).shape
        TensorShape([2, 8])

    Reference: He et al. 2021 (arXiv 2006.03654); `transformers`, modeling_deberta_v2.py,
    `ConvLayer`.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        self.dense = self.make_dense(self.config.hidden_size, "dense")
        self.layer_norm = self.make_layer_norm("layer_norm")
        self.dropout_rate = self.config.hidden_dropout_prob
        self.seed_generator = new_seed_generator()

    def build(self, input_shape=None):
        size = self.config.hidden_size
        self.dense.build([None, self.config.conv_kernel_size * size])
        self.layer_norm.build([None, size])
        self.built = True

    def call(self, rows, layout: TokenLayout, residual, training=False, dropout_seed=None):
        size, hidden = self.config.conv_kernel_size, self.config.hidden_size
        padded = tf.concat([rows, tf.zeros_like(rows[:1])], axis=0)
        around = tf.gather(padded, layout.neighbours(size // 2))  # [R, size, H]
        x = self.dense(tf.reshape(around, [-1, size * hidden]))  # -> [R, H]
        if training and self.dropout_rate:
            seed = next_seed(self.seed_generator) if dropout_seed is None else dropout_seed
            x = stateless_dropout(x, self.dropout_rate, seed)
        return self.layer_norm(ACTIVATIONS[self.config.conv_act].function(x), residual=residual)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoderBlock(ConfiguredLayer):
    """An encoder block, with post-LN unless `config.norm_first`: `[R, H]` -> `[R, H]`.

    The bias of a matmul is added in the op that follows (GELU or LayerNorm), so there is only one
    pass over memory between two matmuls. With `config.norm_first`, both LayerNorms precede what
    they are named after, and their dropout follows it. With `config.conv_kernel_size`, the first
    block ends with `convolution`, a `TokenConvolution` of its input; otherwise that is None.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        num_heads: n, the number of attention heads of the block. None means all heads of the
            configuration.
        index: The place of the block in the encoder: only the first may have a convolution, and no
            LayerNorm before its attention (`config.first_block_norm`).

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        rule: The `ops.AttentionRule`: which tokens of its sequence a token attends to.
        dropout_seeds: The result of `draw_seeds`. By default, new seeds are drawn.
        probes: The `AttentionProbes`, or None.
        distances: The vectors of distances of disentangled attention, `[S, H]`, or None.

    Returns:
        `[R, H]`.

    Raises:
        UserError: If `probes` asks for probabilities and the layout is packed.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4)
        >>> layout = TokenLayout.packed(tf.constant([[True, True, False]]))
        >>> bert_tf.layers.BertEncoderBlock(config)(tf.ones([2, 32]), layout=layout).shape
        TensorShape([2, 32])

    Reference: Devlin et al. 2019, section 3; google-research/bert modeling.py,
    `transformer_model`.
    """

    def __init__(
        self, config: BertConfig | dict, num_heads: int | None = None, index: int = 0, **kwargs
    ):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        dropout_rate = config.hidden_dropout_prob
        self.index = index
        self.norm_before_attention = config.norm_first and (index > 0 or config.first_block_norm)
        self.attention = BertSelfAttention(config, num_heads, dtype=dtype, name="attention")
        size, bias = config.hidden_size, config.mlp_bias
        self.attention_output = self.make_dense(size, "attention_output", config.attention_bias)
        self.attention_layer_norm = self.make_layer_norm("attention_layer_norm", dropout_rate)
        width = config.intermediate_size * (2 if config.gated_mlp else 1)
        self.intermediate = self.make_dense(width, "intermediate", bias)
        bias = bias if config.mlp_output_bias is None else config.mlp_output_bias
        self.output_dense = self.make_dense(size, "output_dense", bias)
        self.output_layer_norm = self.make_layer_norm("output_layer_norm", dropout_rate)
        self.convolution = None
        if index == 0 and config.conv_kernel_size:
            self.convolution = TokenConvolution(config, dtype=dtype, name="convolution")

    def build(self, input_shape=None):
        hidden = [None, self.config.hidden_size]
        # The order decides which initial weights a seed gives.
        self.attention.build(hidden)
        self.attention_output.build([None, self.attention.num_heads * self.config.head_size])
        self.intermediate.build(hidden)
        self.output_dense.build([None, self.config.intermediate_size])
        if self.norm_before_attention or not self.config.norm_first:
            self.attention_layer_norm.build(hidden)
        self.output_layer_norm.build(hidden)
        if self.convolution is not None:
            self.convolution.build()
        self.built = True

    def draw_seeds(self) -> list[tf.Tensor | None]:
        """Returns new seeds for the dropouts of the block; None where there is none."""
        layers = [self.attention, self.attention_layer_norm, self.output_layer_norm]
        layers += [] if self.convolution is None else [self.convolution]
        return [next_seed(layer.seed_generator) if layer.dropout_rate else None for layer in layers]

    def call(
        self,
        rows,
        layout: TokenLayout | None = None,
        rule: AttentionRule = EVERY_TOKEN,
        training=False,
        dropout_seeds=(None, None, None, None),
        probes: AttentionProbes | None = None,
        step=None,
        distances=None,
    ):
        """If `step` is given, runs `_step(**step)`: only `__call__` applies the dtype policy."""
        if step is not None:
            return self._step(rows, **step)
        options = {"training": training, "dropout_seed": dropout_seeds[0], "probes": probes}
        options |= {} if distances is None else {"distances": distances}
        x = self.attention_layer_norm(rows) if self.norm_before_attention else rows
        attended = self.attention(x, layout=layout, rule=rule, **options)
        wide = self.add_attended(rows, attended, training, dropout_seeds[1])
        output = self.feed_forward(wide, training, dropout_seeds[2])
        if self.convolution is None:
            return output
        options = {"training": training, "dropout_seed": dropout_seeds[3]}
        return self.convolution(rows, layout=layout, residual=output, **options)

    def step(self, rows, position, cache, prefix, prefix_mask):
        """Computes one new token per sequence, `[m, H]`, and the next cache, for inference.

        Args:
            rows, position: `[m, H]`, and a scalar int32, the place of the tokens in the cache.
            cache: The `KeyValueCache` of the tokens since the prefix.
            prefix: The keys and values of the prefixes, two tensors `[B, n, S, D]`; m is a multiple
                of B.
            prefix_mask: bool `[B, S]`, True for real tokens of the prefixes.
        """
        step = {"position": position, "cache": cache, "prefix": (*prefix, prefix_mask)}
        return self(rows, step=step)

    def _step(self, rows, position, cache, prefix):
        x = self.attention_layer_norm(rows) if self.norm_before_attention else rows
        attended, cache = self.attention.step(x, position, cache, *prefix)
        return self.feed_forward(self.add_attended(rows, attended)), cache

    def add_attended(self, rows, attended, training=False, dropout_seed=None):
        """Projects what the attention returned, `[R, n * D]`, and adds it: `[R, H]` -> `[R, H]`."""
        options = {"residual": rows, "training": training, "dropout_seed": dropout_seed}
        normalizes = not self.config.norm_first
        norm = Epilogue(layer_norm=self.attention_layer_norm, normalizes=normalizes, **options)
        return self.attention_output.apply(attended, norm)  # [R, n * D] -> [R, H]

    def feed_forward(self, rows, training=False, dropout_seed=None):
        """Computes the second half of the block: `[R, H]` -> `[R, H]`."""
        config, layer_norm = self.config, self.output_layer_norm
        activation = Epilogue(activation=config.hidden_act, is_gated=config.gated_mlp)
        options = {"residual": rows, "training": training, "dropout_seed": dropout_seed}
        norm = Epilogue(layer_norm=layer_norm, normalizes=not config.norm_first, **options)
        x = layer_norm(rows) if config.norm_first else rows
        return self.intermediate.feed_forward(self.output_dense, x, activation, norm)

    def dense_layers(self) -> dict[str, Dense]:
        """Returns the dense layers of the block by their paths in it; most blocks have four."""
        layers = {
            "attention.query_key_value": self.attention.query_key_value,
            "attention.distance_query": self.attention.distance_query,
            "attention.distance_key": self.attention.distance_key,
            "attention_output": self.attention_output,
            "intermediate": self.intermediate,
            "output_dense": self.output_dense,
            "convolution.dense": self.convolution and self.convolution.dense,
        }
        return {path: dense for path, dense in layers.items() if dense is not None}

    def keep_heads(self, places: list[int]) -> None:
        """Removes the weights of all other heads; see `BertSelfAttention.keep_heads`."""
        dense = self.attention_output
        kernel = tf.reshape(  # [n * D, H] -> [n, D, H]
            tf.convert_to_tensor(dense.kernel), [-1, self.config.head_size, dense.units]
        )
        kernel = tf.reshape(tf.gather(kernel, places), [-1, dense.units])
        bias = dense.bias
        dense.replace(kernel, None if bias is None else tf.convert_to_tensor(bias))
        self.attention.keep_heads(places)

    @property
    def num_heads(self) -> int:
        """The number of attention heads that the block has now."""
        return self.attention.num_heads
