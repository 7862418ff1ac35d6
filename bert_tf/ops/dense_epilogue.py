"""The computation after the matmul of `fused_dense` and of `quantized_dense`.

The module checks its arguments, and those of the two feed-forward ops, and has its reference
implementation.
"""

import dataclasses

import tensorflow as tf

from bert_tf.ops.fused_bias_gelu import fused_bias_gelu_reference
from bert_tf.ops.fused_residual_layer_norm import fused_residual_layer_norm_reference
from bert_tf.ops.native import float_tensors

FUSED_ACTIVATIONS = (None, "gelu", "gelu_new")


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
        """Returns the native ops' optional inputs."""
        tensors = (self.bias, self.residual, self.gamma, self.beta)
        return [[] if tensor is None else [tensor] for tensor in tensors]

    def attributes(self) -> dict:
        """Returns the native ops' attributes."""
        return {
            "units": self.units,
            "activation": self.activation or "none",
            "epsilon": self.epsilon,
        }

    def reference(self, z: tf.Tensor) -> tf.Tensor:
        """Computes y from z = x W, [M, units] float32, in stock TensorFlow ops."""
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
    """Returns the named tensors, x first, and the epilogue, all of one dtype.

    Shapes other than the rank of x are not checked here: see `check_dense_shapes`.

    Raises:
        TypeError: If a dtype is not float32, bfloat16 or float16, or if the dtypes differ.
        ValueError: If x is not a matrix, the activation is unknown or combined with a residual or
            LayerNorm, one of gamma and beta is missing, or epsilon is negative.
    """
    *tensors, bias, residual, gamma, beta = float_tensors(
        **tensors, bias=bias, residual=residual, gamma=gamma, beta=beta
    )
    epilogue = DenseEpilogue(int(units), bias, activation, residual, gamma, beta, float(epsilon))
    _check_common(tensors[0], activation, epsilon)
    if activation is not None and (residual is not None or gamma is not None):
        raise ValueError(
            "`activation` must be None if `residual` or `gamma` is given. "
            f"Received: activation={activation!r}"
        )
    if (gamma is None) != (beta is None):
        raise ValueError(
            "`gamma` and `beta` must be given together. "
            f"Received: {'gamma' if gamma is None else 'beta'}=None"
        )
    return tensors, epilogue


def checked_feed_forward(
    x, first_bias, second_bias, gamma, beta, activation, epsilon
) -> list[tf.Tensor]:
    """Returns the first five, arguments of `fused_feed_forward`, as tensors of one dtype.

    Shapes other than the rank of x are not checked here: see `check_vectors`.

    Raises:
        TypeError: If a dtype is not float32, bfloat16 or float16, or if the dtypes differ.
        ValueError: If x is not a matrix, the activation is unknown, or epsilon is negative.
    """
    tensors = float_tensors(
        x=x, first_bias=first_bias, second_bias=second_bias, gamma=gamma, beta=beta
    )
    _check_common(tensors[0], activation, epsilon)
    return tensors


def _check_common(x: tf.Tensor, activation: str | None, epsilon: float) -> None:
    if activation not in FUSED_ACTIVATIONS:
        raise ValueError(
            f"`activation` must be None, 'gelu' or 'gelu_new'. Received: activation={activation!r}"
        )
    if not epsilon >= 0.0:
        raise ValueError(f"`epsilon` must be at least 0. Received: epsilon={epsilon}")
    if x.shape.rank not in (None, 2):
        raise ValueError(f"`x` must have shape [M, K]. Received: x.shape={x.shape}")


def check_dense_shapes(x: tf.Tensor, epilogue: DenseEpilogue, **others) -> None:
    """Raises `ValueError` for tensors that do not fit x, as far as the shapes are known.

    `others` are tensors in addition to those of the epilogue, as tuples (tensor, expected shape).
    """
    units = epilogue.units
    shapes = {
        **others,
        "bias": (epilogue.bias, [units]),
        "residual": (epilogue.residual, [x.shape[0], units]),
        "gamma": (epilogue.gamma, [units]),
        "beta": (epilogue.beta, [units]),
    }
    for name, (tensor, shape) in shapes.items():
        if tensor is not None and not tensor.shape.is_compatible_with(shape):
            raise ValueError(
                f"`{name}` must have shape {shape} if x.shape={x.shape} and units={units}. "
                f"Received: {name}.shape={tensor.shape}"
            )


def check_vectors(x: tf.Tensor, inner_units: int, vectors: dict) -> None:
    """Raises `ValueError` for vectors that do not have their size, as far as the shapes are known.

    `vectors` has tuples (vector, expected size) by name; the size may be None.
    """
    for name, (vector, size) in vectors.items():
        if not vector.shape.is_compatible_with([size]):
            raise ValueError(
                f"`{name}` must have shape [{size}] if x.shape={x.shape} and "
                f"inner_units={inner_units}. Received: {name}.shape={vector.shape}"
            )


def known_depth(x: tf.Tensor, function: str) -> int:
    """Returns the last dimension of x. Raises `ValueError` if it is not known."""
    if x.shape[-1] is None:
        raise ValueError(
            f"`x` must have a known last dimension in the reference implementation of `{function}`."
            f" Received: x.shape={x.shape}"
        )
    return x.shape[-1]
