"""A dense layer in 8-bit integers: x W with what follows it, in one pass, for inference.

    z = x W + bias
    y = z | gelu(z) | z + residual | LayerNorm(z + residual)

W is quantized once: symmetric, a scale for every column. x is quantized on the fly: asymmetric, a
scale and a zero point for every row, so nothing has to be calibrated and a row does not depend on
the others. Where a few columns of x are much larger than the rest and would leave it few steps, W
can be made to carry them (smoothing): x's columns are multiplied by what W's rows were divided by.

The products are summed exactly, in int32; `custom_ops/kernels/quantized_dense.h` has the formulas.
The native op and its twin compute the same integers, on every processor.

Glossary: M rows, K input features (the kernel's depth), `units` output features.

Reference: Jacob et al. 2018 (arXiv 1712.05877), section 2; scales for rows and columns as in
Dettmers et al. 2022 (arXiv 2208.07339), section 2.2; smoothing as in Xiao et al. 2022
(arXiv 2211.10438), section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.dense_epilogue import DenseEpilogue, check_shapes, checked_dense
from bert_tf.ops.differentiable_once import refuse_gradient
from bert_tf.ops.fused_residual_layer_norm import LAYER_NORM_EPSILON

# custom_ops/kernels/quantized_dense.h: the layout of a packed kernel, and what int32 holds.
_PANEL = 32
_QUAD = 4
MAX_DEPTH = 65536

_LARGEST_WEIGHT = 127.0  # symmetric: -128 is not used
_LARGEST_INPUT = 255.0
_SMALLEST_SPAN = 2.0**-100  # kSmallestSpan
# Sums of so many products of a byte and a signed byte are whole numbers that float32 holds.
_EXACT_DEPTH = 512  # 512 * 255 * 127 < 2^24


class QuantizedKernel(NamedTuple):
    """A kernel [K, units] as `quantized_dense` takes it.

    Attributes:
        packed: int8 [K * units], both rounded up (to multiples of 4 and 32), in the order in which
            the matmul reads it; the same on every processor.
        scale: float32 [units], what an integer of a column is worth.
        column_sums: int32 [units], the sums of the integers of a column.
        smoothing: float32 [K], what x's columns are multiplied by; ones for none.

    Example:
        >>> values, scale = bert_tf.ops.quantize_kernel(tf.eye(2))
        >>> kernel = bert_tf.ops.pack_quantized_dense(values, scale)
        >>> kernel.column_sums.numpy()
        array([127, 127], dtype=int32)
    """

    packed: tf.Tensor
    scale: tf.Tensor
    column_sums: tf.Tensor
    smoothing: tf.Tensor


def quantize_kernel(
    kernel: tf.Tensor, smoothing: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """A dense layer's kernel as integers and a scale for every column.

    Args:
        kernel: [K, units] of a float dtype.
        smoothing: [K], what x's columns will be multiplied by; None for ones.

    Returns:
        int8 [K, units] in [-127, 127] and float32 [units]: their product is the kernel, its rows
        divided by smoothing, off by at most half a scale.

    Raises:
        ValueError: kernel is no matrix.
        tf.errors.InvalidArgumentError: a number in it is not finite.

    Example:
        >>> values, scale = bert_tf.ops.quantize_kernel(tf.constant([[1.0, -4.0], [0.5, 2.0]]))
        >>> values.numpy()
        array([[ 127, -127],
               [  64,   64]], dtype=int8)
        >>> scale.numpy().round(4)
        array([0.0079, 0.0315], dtype=float32)
    """
    kernel = tf.cast(tf.convert_to_tensor(kernel), tf.float32)
    if kernel.shape.rank != 2:
        raise ValueError(
            f"Expected kernel to be a matrix, [K, units]. Received: kernel of shape {kernel.shape}"
        )
    if smoothing is not None:
        kernel /= tf.cast(smoothing, tf.float32)[:, tf.newaxis]
    tf.debugging.assert_all_finite(kernel, "Expected a kernel of finite numbers to quantize")
    if kernel.shape[0] == 0:
        return tf.cast(kernel, tf.int8), tf.zeros([kernel.shape[1]])
    scale = tf.reduce_max(tf.abs(kernel), axis=0) / _LARGEST_WEIGHT
    scale = tf.where(scale < _SMALLEST_SPAN, tf.zeros_like(scale), scale)  # its inverse must exist
    values = tf.round(tf.math.divide_no_nan(kernel, scale))
    values = tf.clip_by_value(values, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    return tf.cast(values, tf.int8), scale


def pack_quantized_dense(
    values: tf.Tensor, scale: tf.Tensor, smoothing: tf.Tensor | None = None
) -> QuantizedKernel:
    """Brings what `quantize_kernel` gave into the form that `quantized_dense` takes.

    Args:
        values: int8 [K, units], of known shape.
        scale: float32 [units].
        smoothing: float32 [K], as `quantize_kernel` was given it; None for ones.

    Raises:
        TypeError: another dtype.
        ValueError: values is no matrix of known shape, or scale or smoothing does not fit it.

    Example:
        >>> values, scale = bert_tf.ops.quantize_kernel(tf.eye(2))
        >>> kernel = bert_tf.ops.pack_quantized_dense(values, scale)
        >>> bert_tf.ops.quantized_dense(tf.constant([[1.0, 2.0]]), kernel, units=2).numpy().round(2)
        array([[1., 2.]], dtype=float32)
    """
    values, scale = tf.convert_to_tensor(values), tf.convert_to_tensor(scale)
    known = values.shape.rank == 2 and values.shape.is_fully_defined()
    if smoothing is None:
        smoothing = tf.ones([values.shape[0] if known else 0])
    smoothing = tf.convert_to_tensor(smoothing)
    dtypes = (values.dtype, scale.dtype, smoothing.dtype)
    if dtypes != (tf.int8, tf.float32, tf.float32):
        raise TypeError(
            "Expected values of dtype int8, scale and smoothing of dtype float32. "
            f"Received: {', '.join(dtype.name for dtype in dtypes)}"
        )
    fits = known and scale.shape == values.shape[1:] and smoothing.shape == values.shape[:1]
    if not fits:
        raise ValueError(
            "Expected values of known shape [K, units], scale of shape [units] and smoothing of "
            f"shape [K]. Received: shapes {values.shape}, {scale.shape} and {smoothing.shape}"
        )
    depth, units = values.shape
    quads, panels = _packed_shape(depth, units)
    padded = tf.pad(values, [[0, quads * _QUAD - depth], [0, panels * _PANEL - units]])
    # [K, units] -> [K / 4, 4, panels, 32] -> [panels, K / 4, 32, 4]
    blocks = tf.transpose(tf.reshape(padded, [quads, _QUAD, panels, _PANEL]), [2, 0, 3, 1])
    column_sums = tf.reduce_sum(tf.cast(values, tf.int32), axis=0)
    return QuantizedKernel(tf.reshape(blocks, [-1]), scale, column_sums, smoothing)


def unpack_quantized_dense(packed: tf.Tensor, depth: int, units: int) -> tf.Tensor:
    """The int8 integers, [K, units], that `pack_quantized_dense` packed.

    Example:
        >>> kernel = bert_tf.ops.pack_quantized_dense(*bert_tf.ops.quantize_kernel(tf.eye(2)))
        >>> bert_tf.ops.unpack_quantized_dense(kernel.packed, 2, 2).numpy()
        array([[127,   0],
               [  0, 127]], dtype=int8)
    """
    quads, panels = _packed_shape(depth, units)
    # [panels, K / 4, 32, 4] -> [K / 4, 4, panels, 32] -> [K, units]
    blocks = tf.transpose(tf.reshape(packed, [panels, quads, _PANEL, _QUAD]), [1, 3, 0, 2])
    return tf.reshape(blocks, [quads * _QUAD, panels * _PANEL])[:depth, :units]


def quantized_dense(
    x: tf.Tensor,
    kernel: QuantizedKernel,
    units: int,
    bias: tf.Tensor | None = None,
    activation: str | None = None,
    residual: tf.Tensor | None = None,
    gamma: tf.Tensor | None = None,
    beta: tf.Tensor | None = None,
    epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
    """x W + bias in 8-bit integers, and then GELU, or + residual and LayerNorm, in one pass.

    A row of the result has the same bits whatever other rows stand in x, and for every number of
    threads. A row with a NaN or an infinity, in x or after smoothing, comes out as NaN, and no
    other row. For inference: there is no gradient.

    Args:
        x: [M, K] float32, bfloat16 or float16, K at most 65,536.
        kernel: what `pack_quantized_dense` made of the kernel [K, units].
        units: the number of columns of the kernel.
        bias: [units], or None for none.
        activation: None, "gelu" (erf) or "gelu_new" (tanh), of x W + bias; not together with
            residual or gamma.
        residual: [M, units] that is added, or None for none.
        gamma: [units], LayerNorm's scale; None for no LayerNorm.
        beta: [units], LayerNorm's offset; with gamma.
        epsilon: added to LayerNorm's variance.

    Returns:
        [M, units] of x's dtype.

    Raises:
        TypeError: another dtype, or several different ones.
        ValueError, tf.errors.InvalidArgumentError: shapes that do not fit, an unknown activation or
            one with a residual or LayerNorm, gamma without beta, a negative epsilon.

    Example:
        >>> values, scale = bert_tf.ops.quantize_kernel(tf.random.normal([768, 3072]))
        >>> kernel = bert_tf.ops.pack_quantized_dense(values, scale)
        >>> y = bert_tf.ops.quantized_dense(
        ...     tf.random.normal([5, 768]), kernel, 3072, bias=tf.zeros([3072]), activation="gelu"
        ... )
        >>> y.shape
        TensorShape([5, 3072])
    """
    x, kernel, epilogue = _checked(
        x, kernel, units, bias, activation, residual, gamma, beta, epsilon
    )
    if not native.use_native(runs_on_gpu=False):
        return _reference(x, kernel, epilogue)
    return native.library().bert_tf_quantized_dense(
        x, *kernel, *epilogue.inputs(), **epilogue.attributes()
    )


def quantized_dense_reference(
    x: tf.Tensor,
    kernel: QuantizedKernel,
    units: int,
    bias: tf.Tensor | None = None,
    activation: str | None = None,
    residual: tf.Tensor | None = None,
    gamma: tf.Tensor | None = None,
    beta: tf.Tensor | None = None,
    epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
    """`quantized_dense` in stock TensorFlow ops: on any device and under XLA, at float32's speed or
    below. The integers are multiplied as float32, which is exact in blocks of 512; K must be
    known.

    Example:
        >>> kernel = bert_tf.ops.pack_quantized_dense(*bert_tf.ops.quantize_kernel(tf.eye(2)))
        >>> x = tf.constant([[1.0, 2.0]])
        >>> bert_tf.ops.quantized_dense_reference(x, kernel, units=2).numpy().round(2)
        array([[1., 2.]], dtype=float32)
    """
    return _reference(*_checked(x, kernel, units, bias, activation, residual, gamma, beta, epsilon))


def _checked(x, kernel, units, bias, activation, residual, gamma, beta, epsilon) -> tuple:
    (x,), epilogue = checked_dense(
        {"x": x}, units, bias, activation, residual, gamma, beta, epsilon
    )
    kernel = QuantizedKernel(*(tf.convert_to_tensor(part) for part in kernel))
    dtypes = tuple(part.dtype for part in kernel)
    if dtypes != (tf.int8, tf.float32, tf.int32, tf.float32):
        raise TypeError(
            "Expected a kernel of packed int8, scale float32, column_sums int32 and smoothing "
            "float32. "
            f"Received: {', '.join(dtype.name for dtype in dtypes)}"
        )
    depth = x.shape[-1] if x.shape.rank is not None else None
    if depth is not None and depth > MAX_DEPTH:
        raise ValueError(
            f"Expected x of at most {MAX_DEPTH} columns, whose sums int32 holds. "
            f"Received: x of shape {x.shape}"
        )
    size = None
    if depth is not None:
        quads, panels = _packed_shape(depth, epilogue.units)
        size = quads * _QUAD * panels * _PANEL
    check_shapes(
        x,
        epilogue,
        packed=(kernel.packed, [size]),
        scale=(kernel.scale, [epilogue.units]),
        column_sums=(kernel.column_sums, [epilogue.units]),
        smoothing=(kernel.smoothing, [depth]),
    )
    return x, kernel, epilogue


def _packed_shape(depth: int, units: int) -> tuple[int, int]:
    """The quads of rows and the panels of columns."""
    return -(-depth // _QUAD), -(-units // _PANEL)


def _quantized_rows(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """x [M, K] float32 as whole numbers in [0, 255], float32, and scale float32, zero [M, 1]."""
    zero = tf.zeros_like(x[:, :1])
    # The row and zero, so that a row of no numbers has a span too.
    least = tf.reduce_min(tf.concat([x, zero], axis=1), axis=1, keepdims=True)
    largest = tf.reduce_max(tf.concat([x, zero], axis=1), axis=1, keepdims=True)
    is_finite = tf.reduce_all(tf.math.is_finite(x), axis=1, keepdims=True)
    least, span = (
        tf.cast(least, tf.float64),
        tf.cast(largest, tf.float64) - tf.cast(least, tf.float64),
    )
    counts = is_finite & (span >= _SMALLEST_SPAN)
    step = tf.where(counts, span, tf.ones_like(span)) / _LARGEST_INPUT
    zero = tf.where(counts, tf.cast(tf.round(-least / step), tf.float32), 0.0)
    inverse = tf.cast(1.0 / step, tf.float32)
    u = tf.clip_by_value(tf.round(x * inverse) + zero, 0.0, _LARGEST_INPUT)
    scale = tf.where(counts, tf.cast(step, tf.float32), 0.0)
    scale = tf.where(is_finite, scale, float("nan"))
    return tf.where(counts, u, 0.0), scale, zero  # [M, K], [M, 1], [M, 1]


def _reference(x, kernel: QuantizedKernel, epilogue: DenseEpilogue) -> tf.Tensor:
    depth = x.shape[-1] if x.shape.rank is not None else None
    if depth is None:
        raise ValueError(
            "Expected the reference of quantized_dense to be traced with a known last dimension of "
            "x. Received: x of unknown last dimension"
        )
    u, row_scale, zero = _quantized_rows(tf.cast(x, tf.float32) * kernel.smoothing)
    v = tf.cast(unpack_quantized_dense(kernel.packed, depth, epilogue.units), tf.float32)
    sums = -tf.cast(zero, tf.int32) * kernel.column_sums  # [M, 1] * [units] -> [M, units]
    for begin in range(0, depth, _EXACT_DEPTH):
        block = slice(begin, begin + _EXACT_DEPTH)
        sums += tf.cast(tf.matmul(u[:, block], v[block]), tf.int32)
    z = tf.cast(sums, tf.float32) * kernel.scale * row_scale
    return tf.cast(epilogue.reference(z), x.dtype)


refuse_gradient(
    "BertTf>QuantizedDense",
    "quantized_dense",
    "Integers have none: train in floating point and quantize afterwards.",
)
