"""Checks of the arguments, shared by the native ops and the reference implementations."""

import tensorflow as tf

FLOAT_TYPES = (tf.float32, tf.bfloat16, tf.float16)


def float_tensors(**arguments) -> list[tf.Tensor | None]:
    """Converts the arguments to tensors of the dtype of the first one; None stays None.

    Raises:
        TypeError: If the first is not float32, bfloat16 or float16, or if the dtypes differ.
    """
    tensors: list[tf.Tensor | None] = []
    first_name, dtype = None, None
    for name, value in arguments.items():
        if value is None:
            tensors.append(None)
            continue
        # Python numbers and lists get the first tensor's dtype; tensors and arrays keep theirs.
        convertible = dtype if isinstance(value, (int, float, list, tuple)) else None
        tensor = tf.convert_to_tensor(value, dtype=convertible)
        if dtype is None:
            first_name, dtype = name, tensor.dtype
            if dtype not in FLOAT_TYPES:
                raise TypeError(
                    f"`{name}` must have dtype float32, bfloat16 or float16. "
                    f"Received: {name}.dtype={dtype.name}"
                )
        elif tensor.dtype != dtype:
            raise TypeError(
                f"`{name}` must have the dtype of `{first_name}`, {dtype.name}. "
                f"Received: {name}.dtype={tensor.dtype.name}. Cast one of them."
            )
        tensors.append(tensor)
    return tensors


def check_rank_at_least_one(name: str, tensor: tf.Tensor) -> None:
    """Raises `ValueError` for a scalar, if the shape is known."""
    if tensor.shape.rank == 0:
        raise ValueError(
            f"`{name}` must have shape [..., features]. Received: {name}.shape={tensor.shape}"
        )


def check_features(name: str, vector: tf.Tensor | None, x: tf.Tensor) -> None:
    """Raises `ValueError` unless the vector is as long as the last dimension of x, if known."""
    if vector is None:
        return
    length = x.shape[-1]
    if not vector.shape.is_compatible_with([length]):
        raise ValueError(
            f"`{name}` must have shape [{'features' if length is None else length}], the last "
            f"dimension of `x`. Received: {name}.shape={vector.shape}, x.shape={x.shape}"
        )


def check_same_shape(name: str, tensor: tf.Tensor | None, x: tf.Tensor) -> None:
    """Raises `ValueError` unless the tensor has the shape of x, if the shapes are known."""
    if tensor is not None and not tensor.shape.is_compatible_with(x.shape):
        raise ValueError(
            f"`{name}` must have the shape of `x`, {x.shape}. Received: {name}.shape={tensor.shape}"
        )


def check_dropout(rate: float, seed) -> float:
    """Returns the rate as a float.

    Raises:
        ValueError: If the rate is not in [0, 1), or is above 0 and there is no seed.
    """
    rate = float(rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"`dropout_rate` must be in [0, 1). Received: dropout_rate={rate}")
    if rate > 0.0 and seed is None:
        raise ValueError(
            "`seed` must be an int or a scalar int64 tensor if `dropout_rate` is above 0. "
            f"Received: dropout_rate={rate}, seed=None. Pass a new seed at every step."
        )
    return rate
