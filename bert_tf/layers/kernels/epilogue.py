"""What a dense layer computes after its matmul."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from bert_tf import ops
from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.layers.activation import PLAIN_ACTIVATIONS, bias_activation


@dataclasses.dataclass(frozen=True, eq=False)
class Epilogue:
    """The bias and either an activation, or dropout, a residual and LayerNorm.

    z = x @ kernel
    y = z + bias | activation(z + bias) | LayerNorm(residual + dropout(z + bias))

    Args:
        bias: `[units]` or None. `Dense.apply` sets it.
        activation: The activation, as in `BertConfig`. None means no activation.
        residual: `[R, units]` or None.
        gamma: `[units]`, the scale of LayerNorm. None means no LayerNorm.
        beta: `[units]`, the offset of LayerNorm. Required with `gamma`.
        epsilon: Added to the variance in LayerNorm.
        dropout_rate: Rate of the dropout before LayerNorm.
        dropout_seed: Seed of the dropout, a scalar int64. Required if the rate is not 0.
    """

    bias: tf.Tensor | None = None
    activation: str | None = None
    residual: tf.Tensor | None = None
    gamma: tf.Tensor | None = None
    beta: tf.Tensor | None = None
    epsilon: float = LAYER_NORM_EPSILON
    dropout_rate: float = 0.0
    dropout_seed: tf.Tensor | None = None

    def after(self, z: tf.Tensor) -> tf.Tensor:
        """Computes y `[R, units]` from z `[R, units]` in ops that have gradients."""
        if self.activation is not None:
            return bias_activation(z, self.bias, self.activation)
        if self.gamma is not None:
            return ops.fused_residual_layer_norm(
                z,
                self.residual,
                self.bias,
                self.gamma,
                self.beta,
                epsilon=self.epsilon,
                dropout_rate=self.dropout_rate,
                seed=self.dropout_seed,
            )
        return tf.nn.bias_add(z, self.bias)

    def within(self, dense: Callable, x: tf.Tensor, kernel, units: int) -> tf.Tensor:
        """Computes y `[R, units]` from x `[R, in]` in the same op as the matmul.

        This is for inference: there is no dropout. `dense` is `ops.fused_dense` or
        `ops.quantized_dense`, and `kernel` is what it takes as the kernel.
        """
        if self.activation in PLAIN_ACTIVATIONS:
            y = dense(x, kernel, units, bias=self.bias)
            return PLAIN_ACTIVATIONS[self.activation](y)
        return dense(
            x,
            kernel,
            units,
            bias=self.bias,
            activation=self.activation,
            residual=self.residual,
            gamma=self.gamma,
            beta=self.beta,
            epsilon=self.epsilon,
        )
