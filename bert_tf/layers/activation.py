"""The bias and the activation of a dense layer."""

import tensorflow as tf

from bert_tf import ops

# Activations that no custom op fuses.
PLAIN_ACTIVATIONS = {"relu": tf.nn.relu, "silu": tf.nn.silu}


def bias_activation(x: tf.Tensor, bias, hidden_act: str) -> tf.Tensor:
    """Computes `activation(x + bias)`, for GELU in one fused pass.

    Args:
        x: `[R, F]`.
        bias: `[F]`.
        hidden_act: The activation, as in `BertConfig`.

    Returns:
        `[R, F]`.
    """
    if hidden_act in ("gelu", "gelu_new"):
        return ops.fused_bias_gelu(x, bias, approximate=hidden_act == "gelu_new")
    return PLAIN_ACTIVATIONS[hidden_act](tf.nn.bias_add(x, bias))
