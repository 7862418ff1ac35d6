"""What a dense layer computes after its matmul, and the plain kernel in floating point."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.layers.activation import ACTIVATIONS
from bert_tf.layers.dropout import next_seed


@dataclasses.dataclass(frozen=True, eq=False)
class Epilogue:
    """The bias and either an activation, or dropout, a residual and LayerNorm.

    z = x @ kernel
    y = z + bias | activation(z + bias) | LayerNorm(residual + dropout(z + bias))

    Args:
        bias: `[units]` or None. `Dense.apply` sets it.
        activation: The activation, as in `BertConfig`. None means no activation.
        layer_norm: The `ResidualLayerNorm`, with its dropout. None means no LayerNorm.
        residual: `[R, units]` or None.
        training: Whether there is dropout before LayerNorm.
        dropout_seed: Seed of the dropout, a scalar int64. None draws a seed.
    """

    bias: tf.Tensor | None = None
    activation: str | None = None
    layer_norm: keras.layers.Layer | None = None
    residual: tf.Tensor | None = None
    training: bool = False
    dropout_seed: tf.Tensor | None = None

    def apply_unfused(self, z: tf.Tensor) -> tf.Tensor:
        """Computes y `[R, units]` from z `[R, units]` in ops that have gradients."""
        norm = self.layer_norm
        if norm is not None:
            dropout_rate, seed = norm.dropout_rate if self.training else 0.0, self.dropout_seed
            if dropout_rate and seed is None:
                seed = next_seed(norm.seed_generator)
            return ops.fused_residual_layer_norm(
                z, self.residual, self.bias, norm.gamma, norm.beta, norm.epsilon, dropout_rate, seed
            )
        if self.activation is None:
            return tf.nn.bias_add(z, self.bias)
        activation = ACTIVATIONS[self.activation]
        if activation.with_bias is not None:
            return activation.with_bias(z, self.bias)
        return activation.function(tf.nn.bias_add(z, self.bias))

    def apply_fused(self, dense: Callable, x: tf.Tensor, kernel, units: int) -> tf.Tensor:
        """Computes y `[R, units]` from x `[R, in]` in the same op as the matmul.

        This is for inference: there is no dropout. `dense` is `ops.fused_dense` or
        `ops.quantized_dense`, and `kernel` is what it takes as the kernel.
        """
        if self.activation is not None:
            activation = ACTIVATIONS[self.activation]
            if activation.with_bias is None:
                return activation.function(dense(x, kernel, units, bias=self.bias))
        norm = {}
        if self.layer_norm is not None:
            norm = {name: getattr(self.layer_norm, name) for name in ("gamma", "beta", "epsilon")}
        return dense(
            x,
            kernel,
            units,
            bias=self.bias,
            activation=self.activation,
            residual=self.residual,
            **norm,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class FloatKernel:
    """A kernel that TensorFlow multiplies and that can be trained.

    Args:
        kernel: `[in, units]`.
    """

    kernel: keras.Variable
    fuses_feed_forward: ClassVar[bool] = False

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` and the epilogue: `[R, in]` -> `[R, units]`."""
        return epilogue.apply_unfused(tf.matmul(x, tf.convert_to_tensor(self.kernel)))
