"""quantized_attention in NumPy, without code of the op, from the formulas of
custom_ops/kernels/attention/quantized_attention.h.

Glossary: R tokens of all sequences, N heads, D head size, T length of one sequence.
"""

import numpy as np

from tests.ops.numpy_varlen_attention import distance_places, sees

_SMALLEST = 2.0**-100


def quantized_attention(qkv, row_splits, distance_bias=None, **mask):
    """float64 `[R, 3, N, D]` -> `[R, N, D]`. The integers come from float32, as in the op."""
    if distance_bias is None:
        distance_bias = np.zeros([qkv.shape[2], 1])
    output = np.zeros(np.delete(qkv.shape, 1))
    for start, end in zip(row_splits[:-1], row_splits[1:]):
        for n in range(qkv.shape[2]):
            query, key, value = np.moveaxis(qkv[start:end, :, n].astype(np.float32), 1, 0)
            bias = distance_bias[n][distance_places(end - start, distance_bias.shape[1])]
            output[start:end, n] = _head(query, key, value, bias, sees(end - start, **mask))
    return output


def _head(query, key, value, bias, visible):
    """`[T, D]` of each, `[T, T]` and bool `[T, T]` -> `[T, D]`."""
    length, head_size = query.shape
    if length == 0:
        return np.zeros([0, head_size])
    a, a_scale = _asymmetric(query)
    mean = key.sum(axis=0, dtype=np.float32) * np.float32(1 / length)
    b, b_scale = _symmetric(key - mean, axis=1)
    c, c_scale = _symmetric(value, axis=0)
    scores = (a @ b.T) * a_scale * b_scale.T / np.sqrt(head_size)
    scores = np.where(visible, scores + bias, -np.inf)
    weights = np.rint(255 * np.exp(scores - scores.max(axis=1, keepdims=True)))
    return weights @ c / weights.sum(axis=1, keepdims=True) * c_scale


def _symmetric(x, axis):
    largest = np.abs(x).max(axis=axis, keepdims=True)
    counts = largest >= _SMALLEST
    inverse = np.where(counts, np.float32(127) / np.where(counts, largest, 1), 0)
    scale = np.where(counts, largest / np.float32(127), 0)
    return np.rint(x * inverse.astype(np.float32)).astype(np.float64), scale.astype(np.float64)


def _asymmetric(x):
    """Returns the integers minus their zero points, and the scales `[T, 1]`."""
    least = np.minimum(x.min(axis=1, keepdims=True), 0).astype(np.float64)
    largest = np.maximum(x.max(axis=1, keepdims=True), 0).astype(np.float64)
    counts = largest - least >= _SMALLEST
    step = np.where(counts, largest - least, 1) / 255
    zero = np.rint(-least / step)
    u = np.clip(np.rint(x * (1 / step).astype(np.float32)) + zero, 0, 255)
    return np.where(counts, u - zero, 0), np.where(counts, step.astype(np.float32), 0)
