"""One layer of two LSTMs with projections."""

import keras
import tensorflow as tf

from bert_tf.layers.configured_layer import ConfiguredLayer
from research.baselines.config import BaselineConfig


@keras.saving.register_keras_serializable(package="bert_tf")
class LstmBlock(ConfiguredLayer):
    """Two LSTMs of `config.intermediate_size` units, each followed by a dense layer to `H / 2`.

    Args:
        config: A `BaselineConfig`, or its `to_dict()`.
        has_residual: Whether the input is added to the output. It has then the width `H / 2`, else
            `H`.

    Call arguments:
        inputs: A list of the input of the forward and that of the backward LSTM, `[B, T, H]` or
            `[B, T, H / 2]` each.
        padding_mask: bool `[B, T]`, True for real tokens. At the others, the state stays as it is.

    Returns:
        A list of the outputs of both, `[B, T, H / 2]`.

    Example:
        >>> from research.baselines import BaselineConfig
        >>> from research.baselines.lstm_block import LstmBlock
        >>> config = BaselineConfig(hidden_size=24, intermediate_size=16)
        >>> words = tf.ones([1, 3, 24])
        >>> forward, backward = LstmBlock(config)([words, words], tf.fill([1, 3], True))
        >>> forward.shape, backward.shape
        (TensorShape([1, 3, 12]), TensorShape([1, 3, 12]))
    """

    config_class = BaselineConfig

    def __init__(self, config: BaselineConfig | dict, has_residual: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.has_residual = has_residual
        policy, units = self.dtype_policy, self.config.intermediate_size
        lstm = {"return_sequences": True, "use_cudnn": False, "dtype": policy}
        self.forward = keras.layers.LSTM(units, name="forward", **lstm)
        self.backward = keras.layers.LSTM(units, name="backward", **lstm)
        half = self.config.hidden_size // 2
        self.forward_projection = keras.layers.Dense(half, dtype=policy, name="forward_projection")
        self.backward_projection = keras.layers.Dense(
            half, dtype=policy, name="backward_projection"
        )

    def build(self, input_shape=None):
        width = self.config.hidden_size // (2 if self.has_residual else 1)
        units = self.config.intermediate_size
        for lstm in (self.forward, self.backward):
            lstm.build([None, None, width])
        for projection in (self.forward_projection, self.backward_projection):
            projection.build([None, None, units])
        self.built = True

    def call(self, inputs, padding_mask):
        forward, backward = inputs
        forward = self.forward_projection(self.forward(forward, mask=padding_mask))
        # Not `go_backwards`, with which Keras does not turn the mask.
        backward = self.backward(_reversed(backward), mask=_reversed(padding_mask))
        backward = _reversed(self.backward_projection(backward))
        # A new tensor, without the mask that Keras attaches and would warn about.
        outputs = [tf.identity(forward), backward]
        if self.has_residual:
            outputs = [output + values for output, values in zip(outputs, inputs)]
        return outputs


def _reversed(values):
    """Returns `[B, T, ...]` with the order of the tokens reversed."""
    return tf.reverse(values, [1])
