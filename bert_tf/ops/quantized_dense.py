"""`fused_dense` in 8-bit integers: x W and the operations after it, in one pass, for inference.

W is quantized once, symmetrically, with one scale per column. x is quantized when the op runs,
asymmetrically, with one scale and one zero point per row, so no calibration is needed and a row
does not depend on the others; or with a static scale and zero point for all rows, which a
calibration has found: numbers outside of their range are clamped. If a few columns of x are much
larger than the rest, few integers are left for the rest. Smoothing moves the large values into W:
the columns of x are multiplied by the numbers by which the rows of W were divided.

The products are summed exactly, in int32; `custom_ops/kernels/dense/quantized_dense.h` has the
formulas. The native op and the reference implementation compute the same integers on every
processor.

Glossary: M rows, K input features (the kernel's depth), `units` output features.

Reference: Jacob et al. 2018 (arXiv 1712.05877), section 2; scales for rows and columns as in
Dettmers et al. 2022 (arXiv 2208.07339), section 2.2; smoothing as in Xiao et al. 2022
(arXiv 2211.10438), section 4.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.fused_dense import DenseEpilogue, check_dense_shapes, checked_dense, known_depth
from bert_tf.ops.native import refuse_gradient

# The layout of a prepacked kernel, and the largest depth for which int32 can hold the sums; both as
# in quantized_dense.h.
_PANEL = 32
_QUAD = 4
MAX_DEPTH = 65536

_LARGEST_WEIGHT = 127.0  # symmetric: -128 is not used
_LARGEST_INPUT = 255.0
SMALLEST_SPAN = 2.0**-100  # kSmallestSpan
# float32 represents sums of this many products of an unsigned and a signed byte exactly.
_EXACT_DEPTH = 512  # 512 * 255 * 127 < 2^24


class QuantizedKernel(NamedTuple):
    """A kernel `[K, units]` that is quantized and prepacked for `quantized_dense`.

    Attributes:
        packed: `[K * units]`, int8, where K is rounded up to a multiple of 4 and units to a
            multiple of 32. The integers are in the order in which the matmul reads them, the same
            on every processor.
        scale: `[units]`, float32: the factor of the integers of each column.
        column_sums: `[units]`, int32: the sum of the integers of each column.
        smoothing: `[K]`, float32: the factor of each column of x; ones for no smoothing.
        static_scale: `[2]`, float32: the scale of x after smoothing, at least 2^-100, and its zero
            point, an integer in [0, 255]; or empty, `[0]`, if each row has its own.

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
    static_scale: tf.Tensor = np.zeros([0], np.float32)


def quantize_kernel(
    kernel: tf.Tensor, smoothing: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Quantizes the kernel of a dense layer to integers with one scale per column.

    Args:
        kernel: `[K, units]`, of a float dtype.
        smoothing: `[K]`, the factors by which the columns of x will be multiplied. None means
            ones.

    Returns:
        The integers `[K, units]`, int8 in [-127, 127], and the scales `[units]`, float32. Their
        product is the kernel with its rows divided by `smoothing`, with an error of at most half
        a scale.

    Raises:
        ValueError: If `kernel` is not a matrix.
        tf.errors.InvalidArgumentError: If a number in it is not finite.

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
        raise ValueError(f"`kernel` must be a matrix. Received: kernel.shape={kernel.shape}")
    if smoothing is not None:
        kernel /= tf.cast(smoothing, tf.float32)[:, tf.newaxis]
    tf.debugging.assert_all_finite(kernel, "`kernel` must be finite to be quantized")
    if kernel.shape[0] == 0:
        return tf.cast(kernel, tf.int8), tf.zeros([kernel.shape[1]])
    scale = tf.reduce_max(tf.abs(kernel), axis=0) / _LARGEST_WEIGHT
    scale = tf.where(scale < SMALLEST_SPAN, tf.zeros_like(scale), scale)  # its inverse must exist
    values = tf.round(tf.math.divide_no_nan(kernel, scale))
    values = tf.clip_by_value(values, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    return tf.cast(values, tf.int8), scale


def pack_quantized_dense(
    values: tf.Tensor,
    scale: tf.Tensor,
    smoothing: tf.Tensor | None = None,
    static_scale: tf.Tensor | None = None,
) -> QuantizedKernel:
    """Prepacks the results of `quantize_kernel` for `quantized_dense`.

    Args:
        values: `[K, units]`, int8, of known shape.
        scale: `[units]`, float32.
        smoothing: `[K]`, float32, the value that was passed to `quantize_kernel`. None means ones.

    Returns:
        A `QuantizedKernel`.

    Raises:
        TypeError: If an argument has another dtype.
        ValueError: If `values` is not a matrix of known shape, or if the shape of `scale` or
            `smoothing` does not match it.

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
    static_scale = tf.cast([] if static_scale is None else static_scale, tf.float32)
    dtypes = (values.dtype, scale.dtype, smoothing.dtype)
    if dtypes != (tf.int8, tf.float32, tf.float32):
        raise TypeError(
            "`values` must have dtype int8, `scale` and `smoothing` must have dtype float32. "
            f"Received: values.dtype={values.dtype.name}, scale.dtype={scale.dtype.name}, "
            f"smoothing.dtype={smoothing.dtype.name}"
        )
    fits = known and scale.shape == values.shape[1:] and smoothing.shape == values.shape[:1]
    if not fits:
        raise ValueError(
            "`values` must have a known shape [K, units], `scale` must have shape [units] and "
            f"`smoothing` must have shape [K]. Received: values.shape={values.shape}, "
            f"scale.shape={scale.shape}, smoothing.shape={smoothing.shape}"
        )
    depth, units = values.shape
    quads, panels = _packed_shape(depth, units)
    padded = tf.pad(values, [[0, quads * _QUAD - depth], [0, panels * _PANEL - units]])
    # [K, units] -> [K / 4, 4, panels, 32] -> [panels, K / 4, 32, 4]
    blocks = tf.transpose(tf.reshape(padded, [quads, _QUAD, panels, _PANEL]), [2, 0, 3, 1])
    column_sums = tf.reduce_sum(tf.cast(values, tf.int32), axis=0)
    packed = tf.reshape(blocks, [-1])
    return QuantizedKernel(packed, scale, column_sums, smoothing, static_scale)


def unpack_quantized_dense(packed: tf.Tensor, depth: int, units: int) -> tf.Tensor:
    """Restores the integers that `pack_quantized_dense` prepacked.

    Args:
        packed: The field `packed` of the `QuantizedKernel`.
        depth: K, the number of input features.
        units: The number of columns of the kernel.

    Returns:
        `[K, units]`, int8.

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
    is_gated: bool = False,
) -> tf.Tensor:
    """Computes `fused_dense` in 8-bit integers: x W + bias, and what follows it.

    The bits of a row of the result depend neither on the other rows of `x` nor on the number of
    threads. A row with a NaN or an infinity, in `x` or after smoothing, becomes NaN; other rows are
    not affected. The op is for inference: it has no gradient.

    Args:
        x: `[M, K]`, float32, bfloat16 or float16; K is at most 65,536.
        kernel: The kernel `[K, units]`, prepacked by `pack_quantized_dense`.
        units, bias, activation, residual, gamma, beta, epsilon, is_gated: See `fused_dense`.

    Returns:
        `[M, units]`, or `[M, units / 2]` with a gate, with the dtype of `x`.

    Raises:
        TypeError, ValueError, tf.errors.InvalidArgumentError: See `fused_dense`.

    Example:
        >>> values, scale = bert_tf.ops.quantize_kernel(tf.random.normal([768, 3072]))
        >>> kernel = bert_tf.ops.pack_quantized_dense(values, scale)
        >>> y = bert_tf.ops.quantized_dense(
        ...     tf.random.normal([5, 768]), kernel, 3072, bias=tf.zeros([3072]), activation="gelu"
        ... )
        >>> y.shape
        TensorShape([5, 3072])
    """
    options = bias, activation, residual, gamma, beta, epsilon, is_gated
    x, epilogue = checked_dense(x, units, *options)
    kernel = quantized_kernel("kernel", kernel)
    depth = x.shape[-1]
    if depth is not None and depth > MAX_DEPTH:
        raise ValueError(
            f"`x` must have at most {MAX_DEPTH} columns, so that int32 can hold the sums. "
            f"Received: x.shape={x.shape}"
        )
    size = None
    if depth is not None:
        quads, panels = _packed_shape(depth, epilogue.units)
        size = quads * _QUAD * panels * _PANEL
    shapes = [size], [epilogue.units], [epilogue.units], [depth]
    others = dict(zip(kernel._fields[:-1], zip(kernel[:-1], shapes)))
    check_dense_shapes(x, epilogue, **others)
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        return _reference(x, kernel, epilogue)
    *parts, static_scale = kernel
    return library.bert_tf_quantized_dense(
        x, *parts, *epilogue.inputs(), [static_scale], **epilogue.attributes()
    )


quantized_dense_reference = native.reference_of(
    quantized_dense,
    """It runs on any device and under XLA, and is not faster than a float32 matmul. The integers
    are multiplied as float32, which is exact in blocks of 512. K must be known when the function is
    traced.""",
)


def quantized_kernel(name: str, kernel: QuantizedKernel) -> QuantizedKernel:
    """Returns the kernel, the argument `name` of an op, as tensors.

    Raises `TypeError` if a tensor has another dtype, and `ValueError` if `static_scale` has another
    shape.
    """
    kernel = QuantizedKernel(*(tf.convert_to_tensor(part) for part in kernel))
    dtypes = tuple(part.dtype for part in kernel)
    if dtypes != (tf.int8, tf.float32, tf.int32, tf.float32, tf.float32):
        named = zip(kernel._fields, dtypes, strict=True)
        received = ", ".join(f"{name}.{field}.dtype={dtype.name}" for field, dtype in named)
        raise TypeError(
            f"`{name}` must have the dtypes int8 (packed), float32 (scale), int32 (column_sums), "
            f"float32 (smoothing) and float32 (static_scale). Received: {received}"
        )
    if not any(kernel.static_scale.shape.is_compatible_with([size]) for size in (0, 2)):
        raise ValueError(
            f"`{name}.static_scale` must have shape [2], a scale and a zero point, or [0]. "
            f"Received: {name}.static_scale.shape={kernel.static_scale.shape}"
        )
    return kernel


def _packed_shape(depth: int, units: int) -> tuple[int, int]:
    """Returns the number of quads of rows and of panels of columns."""
    return -(-depth // _QUAD), -(-units // _PANEL)


def quantized_rows(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Quantizes the rows of x, float32 `[M, K]`, to integers in [0, 255].

    Returns the integers `[M, K]`, the scales `[M, 1]` and the zero points `[M, 1]`, all float32.
    """
    zero = tf.zeros_like(x[:, :1])
    # Zero is in the range of every row, also of an empty one.
    least = tf.reduce_min(tf.concat([x, zero], axis=1), axis=1, keepdims=True)
    largest = tf.reduce_max(tf.concat([x, zero], axis=1), axis=1, keepdims=True)
    is_finite = tf.reduce_all(tf.math.is_finite(x), axis=1, keepdims=True)
    least, largest = tf.cast(least, tf.float64), tf.cast(largest, tf.float64)
    span = largest - least
    counts = is_finite & (span >= SMALLEST_SPAN)
    step = tf.where(counts, span, tf.ones_like(span)) / _LARGEST_INPUT
    zero = tf.where(counts, tf.cast(tf.round(-least / step), tf.float32), 0.0)
    inverse = tf.cast(1.0 / step, tf.float32)
    u = tf.clip_by_value(tf.round(x * inverse) + zero, 0.0, _LARGEST_INPUT)
    scale = tf.where(counts, tf.cast(step, tf.float32), 0.0)
    scale = tf.where(is_finite, scale, float("nan"))
    return tf.where(counts, u, 0.0), scale, zero  # [M, K], [M, 1], [M, 1]


def _static_rows(x, static_scale):
    scale, zero = static_scale[0], static_scale[1]
    is_finite = tf.reduce_all(tf.math.is_finite(x), axis=1, keepdims=True)
    u = tf.clip_by_value(tf.round(x * (1.0 / scale)) + zero, 0.0, _LARGEST_INPUT)
    scale = tf.where(is_finite, scale, float("nan"))
    return tf.where(is_finite, u, 0.0), scale, tf.fill(tf.shape(scale), zero)


def _reference(x, kernel: QuantizedKernel, epilogue: DenseEpilogue) -> tf.Tensor:
    depth = known_depth(x, "quantized_dense")
    smoothed = tf.cast(x, tf.float32) * kernel.smoothing
    if kernel.static_scale.shape[0] is None:
        u, row_scale, zero = tf.cond(
            tf.size(kernel.static_scale) == 0,
            lambda: quantized_rows(smoothed),
            lambda: _static_rows(smoothed, tf.reshape(kernel.static_scale, [2])),
        )
    elif kernel.static_scale.shape[0]:
        u, row_scale, zero = _static_rows(smoothed, kernel.static_scale)
    else:
        u, row_scale, zero = quantized_rows(smoothed)
    v = tf.cast(unpack_quantized_dense(kernel.packed, depth, epilogue.units), tf.float32)
    sums = -tf.cast(zero, tf.int32) * kernel.column_sums  # [M, 1] * [units] -> [M, units]
    for begin in range(0, depth, _EXACT_DEPTH):
        block = slice(begin, begin + _EXACT_DEPTH)
        sums += tf.cast(tf.matmul(u[:, block], v[block]), tf.int32)
    z = tf.cast(sums, tf.float32) * kernel.scale * row_scale
    return tf.cast(epilogue.reference(z), x.dtype)


refuse_gradient("BertTf>QuantizedDense", "quantized_dense", native.INTEGERS_HAVE_NO_GRADIENT)
