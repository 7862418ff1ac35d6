"""One Transformer encoder block: attention and feed-forward, each with residual and LayerNorm."""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers.activation import bias_activation
from bert_tf.layers.attention import BertSelfAttention
from bert_tf.layers.dense import Dense
from bert_tf.layers.residual_layer_norm import ResidualLayerNorm
from bert_tf.layers.token_layout import TokenLayout


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoderBlock(keras.layers.Layer):
    """`[R, H]` -> `[R, H]`, post-LN.

    Every bias after a matmul goes into the op that follows (GELU or LayerNorm), so between two
    matmuls there is one pass over memory.

    Args:
        config: `BertConfig` or the dictionary of its `to_dict`.

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        return_probabilities: Whether to return the attention probabilities too.

    Returns:
        `[R, H]`, or with `return_probabilities` a pair with `[B, N, T, T]`.

    Reference: Devlin et al. 2019, section 3; google-research/bert modeling.py,
    `transformer_model`.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig(**config)
        config = self.config
        self.attention = BertSelfAttention(config, dtype=self.dtype_policy, name="attention")
        self.attention_output = self._dense(config.hidden_size, "attention_output")
        self.attention_layer_norm = self._layer_norm("attention_layer_norm")
        self.intermediate = self._dense(config.intermediate_size, "intermediate")
        self.output_dense = self._dense(config.hidden_size, "output_dense")
        self.output_layer_norm = self._layer_norm("output_layer_norm")

    def _dense(self, units, name):
        return Dense(units, self.config.initializer_range, dtype=self.dtype_policy, name=name)

    def _layer_norm(self, name):
        return ResidualLayerNorm(
            self.config.layer_norm_eps,
            self.config.hidden_dropout_prob,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape=None):
        hidden = [None, self.config.hidden_size]
        for layer in (self.attention, self.attention_output, self.intermediate):
            layer.build(hidden)
        self.output_dense.build([None, self.config.intermediate_size])
        self.attention_layer_norm.build(hidden)
        self.output_layer_norm.build(hidden)
        self.built = True

    def call(self, rows, layout: TokenLayout, training=False, return_probabilities=False):
        attended = self.attention(
            rows, layout=layout, training=training, return_probabilities=return_probabilities
        )
        probabilities = None
        if return_probabilities:
            attended, probabilities = attended
        rows = self.attention_layer_norm(
            self.attention_output.matmul(attended),
            residual=rows,
            bias=tf.convert_to_tensor(self.attention_output.bias),
            training=training,
        )
        widened = bias_activation(  # [R, F]
            self.intermediate.matmul(rows), self.intermediate.bias, self.config.hidden_act
        )
        rows = self.output_layer_norm(
            self.output_dense.matmul(widened),
            residual=rows,
            bias=tf.convert_to_tensor(self.output_dense.bias),
            training=training,
        )
        return (rows, probabilities) if return_probabilities else rows

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
