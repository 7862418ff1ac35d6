"""What the ops check of their arguments, the same for the native ops and their twins."""

from __future__ import annotations

import tensorflow as tf

FLOAT_TYPES = (tf.float32, tf.bfloat16, tf.float16)


def float_tensors(**arguments) -> list[tf.Tensor | None]:
    """The arguments as tensors of one dtype, that of the first; None stays None.

    Raises:
        TypeError: the first is no float32, bfloat16 or float16, or another has another dtype.
    """
    tensors: list[tf.Tensor | None] = []
    first_name, dtype = None, None
    for name, value in arguments.items():
        if value is None:
            tensors.append(None)
            continue
        # Python numbers and lists take the first tensor's dtype; tensors and arrays keep theirs.
        convertible = dtype if isinstance(value, (int, float, list, tuple)) else None
        tensor = tf.convert_to_tensor(value, dtype=convertible)
        if dtype is None:
            first_name, dtype = name, tensor.dtype
            if dtype not in FLOAT_TYPES:
                raise TypeError(
                    f"Expected {name} of dtype float32, bfloat16 or float16. "
                    f"Received: {name} of dtype {dtype.name}"
                )
        elif tensor.dtype != dtype:
            raise TypeError(
                f"Expected {name} to have the dtype of {first_name}, {dtype.name}; cast one of "
                f"them. Received: {name} of dtype {tensor.dtype.name}"
            )
        tensors.append(tensor)
    return tensors


def check_rank_at_least_one(name: str, tensor: tf.Tensor) -> None:
    """Refuses a scalar, as far as the shape is known."""
    if tensor.shape.rank == 0:
        raise ValueError(f"Expected {name} of shape [..., features]. Received: a scalar")


def check_features(name: str, vector: tf.Tensor | None, x: tf.Tensor) -> None:
    """Refuses a vector that is not as long as x's last dimension, as far as shapes are known."""
    if vector is None:
        return
    length = x.shape[-1] if x.shape.rank is not None else None
    if not vector.shape.is_compatible_with([length]):
        raise ValueError(
            f"Expected {name} of shape [{'features' if length is None else length}], x's last "
            f"dimension. Received: {name} of shape {vector.shape}, x of shape {x.shape}"
        )


def check_same_shape(name: str, tensor: tf.Tensor | None, x: tf.Tensor) -> None:
    """Refuses a tensor whose shape is not x's, as far as shapes are known."""
    if tensor is not None and not tensor.shape.is_compatible_with(x.shape):
        raise ValueError(
            f"Expected {name} to have the shape of x, {x.shape}. "
            f"Received: {name} of shape {tensor.shape}"
        )


def check_dropout(rate: float, seed) -> float:
    """The rate as a float, once it is known to be in [0, 1) and to have a seed if it needs one."""
    rate = float(rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"Expected dropout_rate in [0, 1). Received: dropout_rate={rate}")
    if rate > 0.0 and seed is None:
        raise ValueError(
            "Expected a seed (an int or a scalar int64 tensor, a new one every step) because "
            f"dropout_rate is above 0. Received: dropout_rate={rate}, seed=None"
        )
    return rate
