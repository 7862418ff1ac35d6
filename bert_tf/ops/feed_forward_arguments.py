"""Checks of the arguments that `fused_feed_forward` and `quantized_feed_forward` have in common."""

import tensorflow as tf

from bert_tf.ops.dense_epilogue import FUSED_ACTIVATIONS
from bert_tf.ops.native import float_tensors


def checked_feed_forward(
    x, first_bias, second_bias, gamma, beta, activation, epsilon
) -> list[tf.Tensor]:
    """Returns the first five as tensors of one dtype.

    Shapes other than the rank of x are not checked here: see `check_vectors`.

    Raises:
        TypeError: If a dtype is not float32, bfloat16 or float16, or if the dtypes differ.
        ValueError: If x is not a matrix, the activation is unknown, or epsilon is negative.
    """
    tensors = float_tensors(
        x=x, first_bias=first_bias, second_bias=second_bias, gamma=gamma, beta=beta
    )
    x = tensors[0]
    if activation not in FUSED_ACTIVATIONS:
        raise ValueError(
            f"`activation` must be None, 'gelu' or 'gelu_new'. Received: activation={activation!r}"
        )
    if not epsilon >= 0.0:
        raise ValueError(f"`epsilon` must be at least 0. Received: epsilon={epsilon}")
    if x.shape.rank not in (None, 2):
        raise ValueError(f"`x` must have shape [M, K]. Received: x.shape={x.shape}")
    return tensors


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
