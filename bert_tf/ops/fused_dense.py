"""A dense layer with a prepacked kernel: x W and the operations after it, in one pass.

    z = x W + bias
    y = z | gelu(z) | z + residual | LayerNorm(z + residual)

The native kernels are `custom_ops/kernels/dense/fused_dense.h` and, for W in bfloat16,
`bfloat16_dense.h`. `pack_dense` prepacks W: it reorders W as the matmul reads it. A prepacked
kernel is a plain vector and is the same on every processor. It is not connected to the variable
from which it was made, and must be prepacked again when the variable changes.

Glossary: M rows, K input features (the kernel's depth), `units` output features.
"""

import math

import tensorflow as tf

from bert_tf.base.signatures import has_signature_of
from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.dense_epilogue import DenseEpilogue, check_dense_shapes, checked_dense, known_depth
from bert_tf.ops.differentiable_once import refuse_gradient
from bert_tf.ops.native import float_tensors

# The layout of a prepacked kernel: kDensePanel and kDenseDepth of fused_dense.h, and the rows in a
# word of bfloat16_dense.h.
_PANEL = 32
_BLOCK_DEPTH = 256
_BFLOAT16_ROWS = 2


def pack_dense(kernel: tf.Tensor, transposed: bool = False) -> tf.Tensor:
    """Prepacks the kernel of a dense layer for `fused_dense`.

    Args:
        kernel: `[K, units]`, float32, bfloat16 or float16.
        transposed: Whether `kernel` is `[units, K]` and its transpose is prepacked, as for the
            gradient dx = dy Wᵀ or for the weights of PyTorch.

    Returns:
        `[K * units]` with the dtype of `kernel`; units is rounded up to a multiple of 32 and, with
        bfloat16, K to a multiple of 2. The additional rows and columns are zeros.

    Raises:
        TypeError: If the dtype is not supported.
        ValueError, tf.errors.InvalidArgumentError: If `kernel` is not a matrix.

    Example:
        >>> packed = bert_tf.ops.pack_dense(tf.eye(4))
        >>> bert_tf.ops.fused_dense(tf.ones([1, 4]), packed, units=4).numpy()
        array([[1., 1., 1., 1.]], dtype=float32)
    """
    (kernel,) = float_tensors(kernel=kernel)
    if kernel.shape.rank not in (None, 2):
        raise ValueError(f"`kernel` must be a matrix. Received: kernel.shape={kernel.shape}")
    library = native.used_library(runs_on_gpu=False)
    if library is not None:
        return library.bert_tf_pack_dense(kernel, transposed=bool(transposed))
    if not kernel.shape.is_fully_defined():
        raise ValueError(
            "`kernel` must have a known shape in the reference implementation of `pack_dense`. "
            f"Received: kernel.shape={kernel.shape}"
        )
    if transposed:
        kernel = tf.transpose(kernel)
    layout = _Layout(*kernel.shape, kernel.dtype)
    padded = tf.pad(kernel, [[0, n - m] for m, n in zip(kernel.shape, layout.padded, strict=True)])
    padded = tf.reshape(padded, [-1, layout.rows, layout.padded[1] // _PANEL, _PANEL])
    blocks = []
    for begin, end in layout.blocks():
        # [words, rows, panels, 32] -> [panels, words, 32, rows]
        blocks.append(tf.reshape(tf.transpose(padded[begin:end], [2, 0, 3, 1]), [-1]))
    return tf.concat(blocks, axis=0)


@has_signature_of(pack_dense)
def pack_dense_reference(*args, **kwargs):
    """Computes `pack_dense` in stock TensorFlow ops, with equal results: the reference.

    The shape of `kernel` must be known when the function is traced.

    Example:
        >>> kernel = tf.random.normal([4, 4])
        >>> packed = bert_tf.ops.pack_dense_reference(kernel)
        >>> np.array_equal(bert_tf.ops.unpack_dense(packed, 4, 4), kernel)
        True
    """
    return native.call_reference(pack_dense, *args, **kwargs)


def fused_dense(
    x: tf.Tensor,
    packed: tf.Tensor,
    units: int,
    bias: tf.Tensor | None = None,
    activation: str | None = None,
    residual: tf.Tensor | None = None,
    gamma: tf.Tensor | None = None,
    beta: tf.Tensor | None = None,
    epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
    """Computes x W + bias, and then either GELU or the sum with a residual and LayerNorm.

    Everything is computed in one pass, in float32 for every dtype. With a kernel in bfloat16, `x`
    is rounded to bfloat16 first; processors with AVX512-BF16 then multiply at twice the speed of
    float32, with the same result. The bits of a row of the result depend neither on the other rows
    of `x` nor on the number of threads. The op is for inference: only its reference implementation
    has a gradient (`bert_tf.ops.backend("reference")`).

    Args:
        x: `[M, K]`, float32, bfloat16 or float16.
        packed: The kernel `[K, units]`, prepacked by `pack_dense`, with the dtype of `x` or in
            bfloat16.
        units: The number of columns of the kernel.
        bias: `[units]`, or None for no bias.
        activation: The activation of x W + bias: None, "gelu" (erf) or "gelu_new" (tanh). It
            cannot be combined with `residual` or `gamma`.
        residual: `[M, units]`, added to x W + bias, or None.
        gamma: `[units]`, the scale of LayerNorm. None means no LayerNorm.
        beta: `[units]`, the offset of LayerNorm. Required with `gamma`.
        epsilon: Added to the variance in LayerNorm.

    Returns:
        `[M, units]` with the dtype of `x`.

    Raises:
        TypeError: If a dtype is not supported, or if the dtypes differ.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match, `activation` is unknown
            or combined with a residual or LayerNorm, one of `gamma` and `beta` is missing, or
            `epsilon` is negative.

    Example:
        >>> packed = bert_tf.ops.pack_dense(tf.random.normal([768, 3072]))
        >>> y = bert_tf.ops.fused_dense(
        ...     tf.random.normal([5, 768]), packed, 3072, bias=tf.zeros([3072]), activation="gelu"
        ... )
        >>> y.shape
        TensorShape([5, 3072])
    """
    (x,), epilogue = checked_dense(
        {"x": x}, units, bias, activation, residual, gamma, beta, epsilon
    )
    packed = _packed_kernel(packed, x)
    depth = x.shape[-1]
    size = None if depth is None else packed_size(depth, epilogue.units, packed.dtype)
    check_dense_shapes(x, epilogue, packed=(packed, [size]))
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        return _reference(x, packed, epilogue)
    is_bfloat16 = packed.dtype == tf.bfloat16
    op = library.bert_tf_bfloat16_dense if is_bfloat16 else library.bert_tf_fused_dense
    return op(x, packed, *epilogue.inputs(), **epilogue.attributes())


def _packed_kernel(packed, x):
    packed = tf.convert_to_tensor(packed, x.dtype if isinstance(packed, (list, tuple)) else None)
    if packed.dtype not in (x.dtype, tf.bfloat16):
        raise TypeError(
            f"`packed` must have the dtype of `x`, {x.dtype.name}, or bfloat16. "
            f"Received: packed.dtype={packed.dtype.name}. Cast the kernel before `pack_dense`."
        )
    return packed


@has_signature_of(fused_dense)
def fused_dense_reference(*args, **kwargs):
    """Computes `fused_dense` in stock TensorFlow ops: the reference implementation.

    It runs on any device and under XLA, and is twice differentiable. It unpacks the kernel first,
    so K must be known when the function is traced.

    Example:
        >>> packed = bert_tf.ops.pack_dense(2.0 * tf.eye(2))
        >>> x, bias = tf.ones([1, 2]), tf.constant([0.0, 1.0])
        >>> bert_tf.ops.fused_dense_reference(x, packed, units=2, bias=bias).numpy()
        array([[2., 3.]], dtype=float32)
    """
    return native.call_reference(fused_dense, *args, **kwargs)


def _reference(x, packed, epilogue: DenseEpilogue) -> tf.Tensor:
    dtype = x.dtype
    kernel = unpack_dense(packed, known_depth(x, "fused_dense"), epilogue.units)
    if packed.dtype == tf.bfloat16:
        x = tf.cast(x, tf.bfloat16)
    z = tf.matmul(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32))  # [M, K] -> [M, units]
    return tf.cast(epilogue.reference(z), dtype)


def unpack_dense(packed: tf.Tensor, depth: int, units: int) -> tf.Tensor:
    """Restores the kernel that `pack_dense` prepacked.

    Args:
        packed: The result of `pack_dense`.
        depth: K, the number of input features.
        units: The number of columns of the kernel.

    Returns:
        `[K, units]` with the dtype of `packed`.

    Example:
        >>> packed = bert_tf.ops.pack_dense(tf.eye(2))
        >>> bert_tf.ops.unpack_dense(packed, 2, 2).numpy()
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    layout = _Layout(depth, units, packed.dtype)
    columns = layout.padded[1]
    words = tf.reshape(packed, [-1, columns * layout.rows])
    blocks = []
    for begin, end in layout.blocks():
        block = tf.reshape(words[begin:end], [-1, end - begin, _PANEL, layout.rows])
        # [panels, words, 32, rows] -> [words, rows, panels, 32]
        blocks.append(tf.reshape(tf.transpose(block, [1, 3, 0, 2]), [-1, columns]))
    return tf.concat(blocks, axis=0)[:depth, :units]


def packed_size(depth: int, units: int, dtype: tf.DType) -> int:
    """Returns the number of elements of a prepacked kernel `[depth, units]`."""
    return math.prod(_Layout(depth, units, dtype).padded)


class _Layout:
    """The layout of a prepacked kernel `[depth, units]`.

    Attributes:
        rows: The number of rows whose numbers share a word.
        padded: The shape with zeros up to whole words and panels.
    """

    def __init__(self, depth: int, units: int, dtype: tf.DType):
        self.rows = _BFLOAT16_ROWS if dtype == tf.bfloat16 else 1
        self.padded = tuple(-(-n // m) * m for n, m in ((depth, self.rows), (units, _PANEL)))

    def blocks(self) -> list[tuple[int, int]]:
        """Returns where the blocks of words begin and end along the depth.

        There are as few as possible, of about equal size; with bfloat16, there is only one.
        """
        words = self.padded[0] // self.rows
        count = 1 if self.rows > 1 else max(1, -(-words // _BLOCK_DEPTH))
        edges = [words * i // count for i in range(count + 1)]
        return list(zip(edges[:-1], edges[1:], strict=True))


NO_GRADIENT = (
    "The native op has no gradient. Train with the plain kernel (tf.matmul and other ops), or "
    "differentiate inside `with bert_tf.ops.backend('reference'):` or with BERT_TF_OPS=reference."
)
refuse_gradient("BertTf>FusedDense", "fused_dense", NO_GRADIENT)
refuse_gradient("BertTf>Bfloat16Dense", "fused_dense", NO_GRADIENT)
refuse_gradient("BertTf>PackDense", "pack_dense", NO_GRADIENT)
