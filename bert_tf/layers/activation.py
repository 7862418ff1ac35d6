"""The activations of all layers: one table."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert_tf import ops


class Activation(NamedTuple):
    """An activation."""

    function: Callable[[tf.Tensor], tf.Tensor]
    # The custom op that computes the activation of `x + bias` in one pass, if there is one.
    with_bias: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    # The class of PyTorch, as sentence-transformers writes it, if one without arguments does it.
    torch_name: str | None = None


_QUICK = 1.702  # Hendrycks and Gimpel, arXiv 1606.08415, section 2

# The names are Hugging Face's. "gelu" is exact (erf), "gelu_new" and "quick_gelu" are the
# approximations with tanh and with a sigmoid, x sigmoid(1.702 x).
ACTIVATIONS = {
    "gelu": Activation(tf.nn.gelu, ops.fused_bias_gelu, "torch.nn.modules.activation.GELU"),
    "gelu_new": Activation(
        functools.partial(tf.nn.gelu, approximate=True),
        functools.partial(ops.fused_bias_gelu, approximate=True),
    ),
    "quick_gelu": Activation(lambda x: tf.nn.silu(_QUICK * x) / _QUICK),
    "linear": Activation(tf.identity, torch_name="torch.nn.modules.linear.Identity"),
    "relu": Activation(tf.nn.relu, torch_name="torch.nn.modules.activation.ReLU"),
    "sigmoid": Activation(tf.math.sigmoid, torch_name="torch.nn.modules.activation.Sigmoid"),
    "silu": Activation(tf.nn.silu, torch_name="torch.nn.modules.activation.SiLU"),
    "tanh": Activation(tf.math.tanh, torch_name="torch.nn.modules.activation.Tanh"),
}
