"""Checks of the arguments that `fused_feed_forward` and `quantized_feed_forward` have in common."""

import tensorflow as tf

from bert_tf.ops.arguments import float_tensors
from bert_tf.ops.dense_epilogue import ACTIVATIONS


def checked_feed_forward(
    x, first_bias, second_bias, gamma, beta, inner_units, activation, epsilon
) -> list[tf.Tensor]:
    """Returns the first five as tensors of one dtype.

    Raises:
        TypeError: If a dtype is not float32, bfloat16 or float16, or if the dtypes differ.
        ValueError: If x is not a matrix, a vector does not fit it, the activation is unknown, or
            epsilon is negative.
    """
    tensors = float_tensors(
        x=x, first_bias=first_bias, second_bias=second_bias, gamma=gamma, beta=beta
    )
    x, first_bias, second_bias, gamma, beta = tensors
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"`activation` must be None, 'gelu' or 'gelu_new'. Received: activation={activation!r}"
        )
    if not epsilon >= 0.0:
        raise ValueError(f"`epsilon` must be at least 0. Received: epsilon={epsilon}")
    if x.shape.rank not in (None, 2):
        raise ValueError(f"`x` must have shape [M, K]. Received: x.shape={x.shape}")
    hidden = x.shape[-1] if x.shape.rank == 2 else None
    check_vectors(x, inner_units, inner_units, first_bias=first_bias)
    check_vectors(x, inner_units, hidden, second_bias=second_bias, gamma=gamma, beta=beta)
    return tensors


def check_vectors(x: tf.Tensor, inner_units: int, size: int | None, **vectors) -> None:
    """Raises `ValueError` for vectors that do not have this size, as far as the shapes are known."""
    for name, vector in vectors.items():
        if not vector.shape.is_compatible_with([size]):
            raise ValueError(
                f"`{name}` must have shape [{size}] if x.shape={x.shape} and "
                f"inner_units={inner_units}. Received: {name}.shape={vector.shape}"
            )
