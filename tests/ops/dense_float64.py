"""The dense ops in NumPy, without code of the ops: the layouts of their packed
kernels, exact integers, and what follows the matmul in float64.

Glossary: `M` rows, `K` input features, `units` output features.
"""

import numpy as np
import tensorflow as tf

from tests.ops.gelu_float64 import gelu, silu
from tests.ops.layer_norm_float64 import residual_layer_norm

SMALLEST_SPAN = 2.0**-100

# custom_ops/kernels/dense/fused_dense.h, bfloat16_dense.h and quantized_dense.h
PANEL = 32  # columns of a kernel that are stored together
BLOCK_DEPTH = 256  # the largest number of rows of a block of a float kernel
QUAD = 4  # rows of an integer kernel whose numbers are stored next to each other, in a word
PAIR = 2  # the same of a bfloat16 kernel


def packed_size(depth, units):
    """The length of a packed float kernel [K, units]."""
    return depth * (-(-units // PANEL) * PANEL)


def packed_places(depth, units):
    """The index in the packed float kernel of each element of the kernel: int64 [K, units].

    The order in the packed kernel is: block of rows, panel of columns, row of the block, column of
    the panel.
    """
    k, j = np.indices((depth, units))
    blocks = max(1, -(-depth // BLOCK_DEPTH))
    edges = np.arange(blocks + 1) * depth // blocks  # block i has the rows edges[i] to edges[i + 1]
    block = np.searchsorted(edges, k, side="right") - 1
    begin, end = edges[block], edges[np.minimum(block + 1, blocks)]
    start_of_block = packed_size(begin, units)
    return start_of_block + (j // PANEL * (end - begin) + k - begin) * PANEL + j % PANEL


def word_packed_places(depth, units, rows):
    """The index in the packed int8 or bfloat16 kernel of each of its elements: int64 [K, units].

    The order in the packed kernel is: panel of columns, word of `rows` rows, column of the panel,
    row of the word.
    """
    k, j = np.indices((depth, units))
    words = -(-depth // rows)
    return ((j // PANEL * words + k // rows) * PANEL + j % PANEL) * rows + k % rows


def rounded_to_bfloat16(x):
    """Numbers of x, which float32 can hold, rounded to bfloat16; in float64."""
    return tf.cast(tf.cast(tf.constant(x, tf.float32), tf.bfloat16), tf.float64).numpy()


def epilogue(
    z,
    bias=None,
    residual=None,
    gamma=None,
    beta=None,
    activation=None,
    epsilon=1e-12,
    is_gated=False,
):
    """z = x W, [M, units] float64 -> [M, units]; the arguments of the ops as float64 or None.

    With a gate, the result is [M, units / 2].
    """
    if gamma is not None:
        return residual_layer_norm(z, residual, bias, gamma, beta, epsilon)[0]
    z = z if bias is None else z + bias
    z, factors = np.split(z, 2, axis=1) if is_gated else (z, 1.0)
    if activation is not None:
        z = silu(z) if activation == "silu" else gelu(z, approximate=activation == "gelu_new")
    z = z * factors
    return z if residual is None else z + residual


def quantized_rows(x, smoothing):
    """The formula of custom_ops/kernels/dense/quantized_dense.h on a float32 matrix [M, K].

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


def static_rows(x, smoothing, static_scale):
    """Does what `quantized_rows` does with a given scale and zero point."""
    scale, zero = np.float32(static_scale)
    x = np.asarray(x, np.float32) * np.asarray(smoothing, np.float32)
    u = np.clip(np.round(x * (np.float32(1) / scale)) + zero, 0, 255)
    return (u - zero).astype(np.int64), np.full([len(x), 1], scale)


def quantized_product(x, values, scale, smoothing, static_scale=()):
    """x W as the integers say, float32 [M, units], rounded as the op documents it."""
    if len(static_scale):
        rows, row_scale = static_rows(x, smoothing, static_scale)
    else:
        rows, row_scale = quantized_rows(x, smoothing)
    sums = rows @ np.asarray(values, np.int64)
    assert np.abs(sums).max(initial=0) < 2**31
    return sums.astype(np.float32) * np.asarray(scale, np.float32) * row_scale
