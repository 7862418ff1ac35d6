"""The learned weighted sum of layers of ELMo."""

import keras
import tensorflow as tf

from bert_tf.base.keras_compat import QuickLayer
from bert_tf.config import LAYER_NORM_EPSILON


@keras.saving.register_keras_serializable(package="bert_tf")
class ScalarMix(QuickLayer):
    """Computes `gamma * Σ softmax(scalars)_k * states_k`, with one learned weight per layer.

    Args:
        layer_norm: Whether to first normalize every vector to mean 0 and variance 1, so that a
            layer with large values does not dominate the sum.

    Call arguments:
        states: A list of K tensors `[..., H]`: all or some `hidden_states` of a backbone.

    Returns:
        `[..., H]`.

    Example:
        >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
        >>> tokens = {"token_ids": tf.constant([[101, 7592, 2088, 102]])}
        >>> states = backbone(tokens, output_hidden_states=True)["hidden_states"]
        >>> len(states), ScalarMix()(states).shape  # K times [B, T, H]
        (7, TensorShape([1, 4, 384]))

    Reference: Peters et al. 2018 (ELMo, arXiv 1802.05365), equation 1.
    """

    def __init__(self, layer_norm: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.layer_norm = layer_norm

    def build(self, input_shape):
        self.scalars = self.add_weight(
            name="scalars", shape=[len(input_shape)], initializer="zeros"
        )
        self.gamma = self.add_weight(name="gamma", shape=[1], initializer="ones")
        self.built = True

    def call(self, states):
        shares = tf.unstack(tf.nn.softmax(tf.convert_to_tensor(self.scalars)))
        if self.layer_norm:
            states = [_normalized(state) for state in states]
        mixed = tf.add_n([share * state for share, state in zip(shares, states, strict=True)])
        return tf.convert_to_tensor(self.gamma) * mixed

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[0])

    def get_config(self):
        return {**super().get_config(), "layer_norm": self.layer_norm}


def _normalized(state):
    """Normalizes `[..., H]` to mean 0 and variance 1 over H, in float32.

    Zeros, as for padding, remain zeros.
    """
    values = tf.cast(state, tf.float32)
    mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
    return tf.cast((values - mean) * tf.math.rsqrt(variance + LAYER_NORM_EPSILON), state.dtype)
