"""What follows the matmul of `fused_dense` and of `quantized_dense`: its arguments and its twin.

z = x W + bias
y = z | gelu(z) | z + residual | LayerNorm(z + residual)
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from bert_tf.ops.arguments import float_tensors
from bert_tf.ops.fused_bias_gelu import fused_bias_gelu_reference
from bert_tf.ops.fused_residual_layer_norm import fused_residual_layer_norm_reference

_ACTIVATIONS = {None: "none", "gelu": "gelu", "gelu_new": "gelu_new"}


@dataclasses.dataclass(frozen=True)
class DenseEpilogue:
    """The checked arguments, as `fused_dense` documents them."""

    units: int
    bias: tf.Tensor | None
    activation: str | None
    residual: tf.Tensor | None
    gamma: tf.Tensor | None
    beta: tf.Tensor | None
    epsilon: float

    def inputs(self) -> list[list[tf.Tensor]]:
        """The native ops' optional inputs."""
        tensors = (self.bias, self.residual, self.gamma, self.beta)
        return [[] if tensor is None else [tensor] for tensor in tensors]

    def attributes(self) -> dict:
        """The native ops' attributes."""
        return {
            "units": self.units,
            "activation": _ACTIVATIONS[self.activation],
            "epsilon": self.epsilon,
        }

    def reference(self, z: tf.Tensor) -> tf.Tensor:
        """y of x W, [M, units] float32, in stock TensorFlow ops."""
        bias, residual, gamma, beta = (
            None if tensor is None else tf.cast(tensor, tf.float32)
            for tensor in (self.bias, self.residual, self.gamma, self.beta)
        )
        if self.activation is not None:
            bias = tf.zeros([self.units]) if bias is None else bias
            return fused_bias_gelu_reference(z, bias, approximate=self.activation == "gelu_new")
        if gamma is not None:
            return fused_residual_layer_norm_reference(z, residual, bias, gamma, beta, self.epsilon)
        z = z if bias is None else z + bias
        return z if residual is None else z + residual


def checked_dense(
    tensors, units, bias, activation, residual, gamma, beta, epsilon
) -> tuple[list[tf.Tensor], DenseEpilogue]:
    """The named tensors, x first, and the epilogue, all of one dtype; shapes are for later.

    Raises:
        TypeError: another dtype than float32, bfloat16 or float16, or several different ones.
        ValueError: x is no matrix, an unknown activation or one with a residual or LayerNorm, gamma
            without beta, a negative epsilon.
    """
    *tensors, bias, residual, gamma, beta = float_tensors(
        **tensors, bias=bias, residual=residual, gamma=gamma, beta=beta
    )
    epilogue = DenseEpilogue(int(units), bias, activation, residual, gamma, beta, float(epsilon))
    if activation not in _ACTIVATIONS:
        raise ValueError(
            "Expected activation to be None, 'gelu' or 'gelu_new'. "
            f"Received: activation={activation!r}"
        )
    if activation is not None and (residual is not None or gamma is not None):
        raise ValueError(
            "Expected no activation together with residual or gamma. "
            f"Received: activation={activation!r} and one of them"
        )
    if (gamma is None) != (beta is None):
        raise ValueError(
            "Expected gamma and beta, or neither. "
            f"Received: only {'beta' if gamma is None else 'gamma'}"
        )
    if not epilogue.epsilon >= 0.0:
        raise ValueError(f"Expected epsilon >= 0. Received: epsilon={epsilon}")
    x = tensors[0]
    if x.shape.rank not in (None, 2):
        raise ValueError(f"Expected x of shape [M, K]. Received: x of shape {x.shape}")
    return tensors, epilogue


def check_shapes(x: tf.Tensor, epilogue: DenseEpilogue, **others) -> None:
    """Refuses what does not fit x, as far as shapes are known; `others` are (tensor, shape)."""
    units = epilogue.units
    rows = x.shape[0] if x.shape.rank is not None else None
    shapes = {
        **others,
        "bias": (epilogue.bias, [units]),
        "residual": (epilogue.residual, [rows, units]),
        "gamma": (epilogue.gamma, [units]),
        "beta": (epilogue.beta, [units]),
    }
    for name, (tensor, shape) in shapes.items():
        if tensor is not None and not tensor.shape.is_compatible_with(shape):
            raise ValueError(
                f"Expected {name} of shape {shape} for x of shape {x.shape} and units={units}. "
                f"Received: {name} of shape {tensor.shape}"
            )
