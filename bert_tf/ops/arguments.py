"""Checks of the arguments, shared by the native ops and the reference implementations."""

from __future__ import annotations

import tensorflow as tf

from bert_tf.ops.philox import seed_tensor

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


def dropout_arguments(rate: float, seed) -> tuple[float, tf.Tensor]:
    """Returns the rate as a float and the seed as a scalar int64, 0 without a seed.

    Raises:
        ValueError: If the rate is not in [0, 1), is above 0 and there is no seed, or the seed is
            not an integer.
    """
    rate = float(rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"`dropout_rate` must be in [0, 1). Received: dropout_rate={rate}")
    if rate > 0.0 and seed is None:
        raise ValueError(
            "`seed` must be an int or a scalar int64 tensor if `dropout_rate` is above 0. "
            f"Received: dropout_rate={rate}, seed=None. Pass a new seed at every step."
        )
    return rate, tf.constant(0, tf.int64) if seed is None else seed_tensor(seed)


def self_attention_tensors(qkv, row_splits, rule) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Returns the first two arguments of `varlen_attention` as tensors, and the distance bias.

    The bias is in float32 and in a list, which is empty without one.

    Raises:
        TypeError: If the dtype of `qkv`, `row_splits` or the distance bias is not supported.
        ValueError: If shapes do not match.
    """
    qkv, bias = float_tensors(qkv=qkv, distance_bias=rule.distance_bias)
    if not qkv.shape.is_compatible_with([None, 3, None, None]):
        raise ValueError(
            f"`qkv` must have shape [tokens, 3, heads, head size]. Received: qkv.shape={qkv.shape}"
        )
    row_splits = row_splits_tensor("row_splits", row_splits)
    if bias is None:
        return qkv, row_splits, []
    heads, distances = qkv.shape.with_rank(4)[2], bias.shape[-1] if bias.shape.rank else None
    is_odd = distances is None or distances % 2 == 1
    if not (bias.shape.is_compatible_with([heads, None]) and is_odd):
        raise ValueError(
            f"`distance_bias` must have shape [{heads or 'heads'}, an odd number of distances]. "
            f"Received: distance_bias.shape={bias.shape}, qkv.shape={qkv.shape}"
        )
    return qkv, row_splits, [tf.cast(bias, tf.float32)]


def row_splits_tensor(name: str, row_splits) -> tf.Tensor:
    """Returns row splits as a tensor.

    Raises:
        TypeError: If the dtype is neither int32 nor int64.
        ValueError: If they are not a vector with one element or more.
    """
    row_splits = tf.convert_to_tensor(row_splits)
    if row_splits.dtype not in (tf.int32, tf.int64):
        raise TypeError(
            f"`{name}` must have dtype int32 or int64. "
            f"Received: {name}.dtype={row_splits.dtype.name}"
        )
    if not row_splits.shape.is_compatible_with([None]) or row_splits.shape == [0]:
        raise ValueError(
            f"`{name}` must have shape [sequences + 1]. Received: {name}.shape={row_splits.shape}"
        )
    return row_splits


def multiplies_bfloat16(tokens: tf.Tensor, compute_dtype: str | None) -> bool:
    """Returns whether matrix products of the tokens are computed in bfloat16.

    Raises:
        ValueError: If `compute_dtype` is neither None nor "bfloat16".
    """
    if compute_dtype not in (None, "bfloat16"):
        raise ValueError(
            '`compute_dtype` must be "bfloat16", or None for the dtype of the tokens. '
            f"Received: compute_dtype={compute_dtype!r}"
        )
    return "bfloat16" in (compute_dtype, tokens.dtype.name)
