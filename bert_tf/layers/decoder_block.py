"""One Transformer decoder block: an encoder block with cross-attention between its two halves."""

import keras

from bert_tf.config import BertConfig
from bert_tf.layers.attention.cross_attention import BertCrossAttention
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.kernels import Epilogue
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule


@keras.saving.register_keras_serializable(package="bert_tf")
class BertDecoderBlock(ConfiguredLayer):
    """A decoder block with post-LN: self-attention, cross-attention, feed-forward network.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        block: The `BertEncoderBlock` with the self-attention and the feed-forward network, to share
            that of an encoder. None makes a new one.

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        rule: The `ops.AttentionRule` of the self-attention, causal in a decoder.
        memory: `[M, H]`, the rows of the encoder.
        memory_layout: The `TokenLayout` of the memory, packed if the other is.

    Returns:
        `[R, H]`.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4)
        >>> layout = TokenLayout.padded(tf.constant([[True, True]]))
        >>> memory = {"memory": tf.ones([3, 32])}
        >>> memory["memory_layout"] = TokenLayout.padded(tf.constant([[True, True, False]]))
        >>> rule = bert_tf.ops.AttentionRule(causal=True)
        >>> block = bert_tf.layers.BertDecoderBlock(config)
        >>> block(tf.ones([2, 32]), layout=layout, rule=rule, **memory).shape
        TensorShape([2, 32])

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.1; Rothe et al. 2019 (arXiv
    1907.12461), section 3.1.
    """

    def __init__(self, config: BertConfig | dict, block: BertEncoderBlock | None = None, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.block = BertEncoderBlock(config, dtype=dtype, name="block") if block is None else block
        self.cross_attention = BertCrossAttention(config, dtype=dtype, name="cross_attention")
        self.cross_attention_output = self.make_dense(config.hidden_size, "cross_attention_output")
        self.cross_attention_layer_norm = self.make_layer_norm(
            "cross_attention_layer_norm", config.hidden_dropout_prob
        )

    def build(self, input_shape=None):
        hidden = [None, self.config.hidden_size]
        if not self.block.built:
            self.block.build()
        self.cross_attention.build()
        self.cross_attention_output.build(hidden)
        self.cross_attention_layer_norm.build(hidden)
        self.built = True

    def call(
        self,
        rows,
        layout: TokenLayout | None = None,
        rule: AttentionRule = EVERY_TOKEN,
        memory=None,
        memory_layout: TokenLayout | None = None,
        training=False,
        step=None,
    ):
        """If `step` is given, runs `_step(**step)`: only `__call__` applies the dtype policy."""
        if step is not None:
            return self._step(rows, **step)
        attended = self.block.attention(rows, layout=layout, rule=rule, training=training)
        rows = self.block.add_attended(rows, attended, training)
        attended = self.cross_attention(
            rows, layout=layout, memory=memory, memory_layout=memory_layout, training=training
        )
        rows = self._add_cross_attended(rows, attended, training)
        return self.block.feed_forward(rows, training)

    def step(self, rows, position, cache, memory, memory_mask):
        """Computes one new token per sequence, `[n, H]`, and the next cache.

        Args:
            rows, position: `[n, H]`, and a scalar int32, the position of the tokens.
            cache: The `KeyValueCache` of the tokens before.
            memory, memory_mask: The keys and values of the memory, two tensors `[B, N, S, D]`, and
                bool `[B, S]`, True for real tokens.
        """
        step = {"position": position, "cache": cache, "memory": memory, "memory_mask": memory_mask}
        return self(rows, step=step)

    def _step(self, rows, position, cache, memory, memory_mask):
        attended, cache = self.block.attention.step(rows, position, cache)
        rows = self.block.add_attended(rows, attended)
        attended = self.cross_attention.step(rows, *memory, memory_mask)
        rows = self._add_cross_attended(rows, attended)
        return self.block.feed_forward(rows), cache

    def _add_cross_attended(self, rows, attended, training=False):
        options = {"residual": rows, "training": training}
        norm = Epilogue(layer_norm=self.cross_attention_layer_norm, **options)
        return self.cross_attention_output.apply(attended, norm)  # [R, N * D] -> [R, H]

    def dense_layers(self) -> dict[str, Dense]:
        """Returns the dense layers of the block by their paths in it."""
        block = {f"block.{path}": dense for path, dense in self.block.dense_layers().items()}
        return {
            **block,
            "cross_attention.query": self.cross_attention.query,
            "cross_attention.key_value": self.cross_attention.key_value,
            "cross_attention_output": self.cross_attention_output,
        }
