"""The activation after a dense layer, its bias included."""

import tensorflow as tf

from bert_tf import ops

# Those that no op of ours fuses.
PLAIN_ACTIVATIONS = {"relu": tf.nn.relu, "silu": tf.nn.silu}


def bias_activation(x: tf.Tensor, bias, hidden_act: str) -> tf.Tensor:
    """`activation(x + bias)`: one fused pass for GELU.

    Args:
        x: `[R, F]`.
        bias: `[F]`, a variable or a tensor.
        hidden_act: As in `BertConfig`.
    """
    bias = tf.convert_to_tensor(bias)
    if hidden_act in ("gelu", "gelu_new"):
        return ops.fused_bias_gelu(x, bias, approximate=hidden_act == "gelu_new")
    return PLAIN_ACTIVATIONS[hidden_act](tf.nn.bias_add(x, bias))
