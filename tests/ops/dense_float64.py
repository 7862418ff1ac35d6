"""fused_dense and quantized_dense in NumPy: exact integers, and what follows the matmul in float64.

Glossary: M rows, K input features, `units` output features.
"""

import numpy as np

from tests.ops.gelu_float64 import gelu
from tests.ops.layer_norm_float64 import residual_layer_norm

SMALLEST_SPAN = 2.0**-100


def epilogue(z, bias=None, residual=None, gamma=None, beta=None, activation=None, epsilon=1e-12):
    """z = x W, [M, units] float64 -> [M, units]; the arguments of the ops as float64 or None."""
    if gamma is not None:
        return residual_layer_norm(z, residual, bias, gamma, beta, epsilon)[0]
    z = z if bias is None else z + bias
    if activation is not None:
        z = gelu(z, approximate=activation == "gelu_new")
    return z if residual is None else z + residual


def quantized_rows(x, smoothing):
    """The formula of custom_ops/kernels/quantized_dense.h on a float32 matrix [M, K].

    Returns the integers, int64 [M, K], and what one is worth, float32 [M, 1].
    """
    x = np.asarray(x, np.float32) * np.asarray(smoothing, np.float32)
    least = np.minimum(x.min(axis=1, initial=0.0), 0.0).astype(np.float64)[:, None]
    span = np.maximum(x.max(axis=1, initial=0.0), 0.0).astype(np.float64)[:, None] - least
    counts = span >= SMALLEST_SPAN
    step = np.where(counts, span, 1.0) / 255.0
    zero = np.where(counts, np.rint(-least / step), 0.0).astype(np.int64)
    u = np.rint(x * (1.0 / step).astype(np.float32)).astype(np.int64) + zero
    u = np.where(counts, np.clip(u, 0, 255), 0)
    return u - zero, np.where(counts, step, 0.0).astype(np.float32)


def quantized_product(x, values, scale, smoothing):
    """x W as the integers say, float32 [M, units], rounded as the op documents it."""
    rows, row_scale = quantized_rows(x, smoothing)
    sums = rows @ np.asarray(values, np.int64)
    assert np.abs(sums).max(initial=0) < 2**31
    return sums.astype(np.float32) * np.asarray(scale, np.float32) * row_scale
