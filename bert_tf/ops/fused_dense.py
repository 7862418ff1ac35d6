"""A dense layer with a prepacked kernel: x W and the operations after it, in one pass.

    z = x W + bias
    y = z | gelu(z) | z + residual | LayerNorm(z + residual)

The native kernel is `custom_ops/kernels/dense/fused_dense.h`. `pack_dense` prepacks W: it reorders
W as the matmul reads it. A prepacked kernel is a plain vector and is the same on every processor.
It is not connected to the variable from which it was made, and must be prepacked again when the
variable changes.

Glossary: M rows, K input features (the kernel's depth), `units` output features.
"""

import tensorflow as tf

from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.arguments import float_tensors
from bert_tf.ops.dense_epilogue import DenseEpilogue, check_shapes, checked_dense, known_depth
from bert_tf.ops.differentiable_once import refuse_gradient
from bert_tf.signatures import has_signature_of

# The layout of a prepacked kernel: kDensePanel and kDenseDepth of fused_dense.h.
_PANEL = 32
_BLOCK_DEPTH = 256


def pack_dense(kernel: tf.Tensor, transposed: bool = False) -> tf.Tensor:
    """Prepacks the kernel of a dense layer for `fused_dense`.

    Args:
        kernel: `[K, units]`, float32, bfloat16 or float16.
        transposed: Whether `kernel` is `[units, K]` and its transpose is prepacked, as for the
            gradient dx = dy Wᵀ or for the weights of PyTorch.

    Returns:
        `[K * units]` with the dtype of `kernel`; units is rounded up to a multiple of 32, and the
        additional columns are zeros.

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
    if native.use_native(runs_on_gpu=False):
        return native.library().bert_tf_pack_dense(kernel, transposed=bool(transposed))
    if not kernel.shape.is_fully_defined():
        raise ValueError(
            "`kernel` must have a known shape in the reference implementation of `pack_dense`. "
            f"Received: kernel.shape={kernel.shape}"
        )
    if transposed:
        kernel = tf.transpose(kernel)
    depth, units = kernel.shape
    panels = -(-units // _PANEL)
    padded = tf.pad(kernel, [[0, 0], [0, panels * _PANEL - units]])
    padded = tf.reshape(padded, [depth, panels, _PANEL])
    blocks = []
    for begin, end in _depth_blocks(depth):
        block = tf.transpose(padded[begin:end], [1, 0, 2])  # [k, panels, 32] -> [panels, k, 32]
        blocks.append(tf.reshape(block, [-1]))
    return tf.concat(blocks, axis=0)


@has_signature_of(pack_dense)
def pack_dense_reference(*args, **kwargs):
    """The reference implementation of `pack_dense`, in stock TensorFlow ops, with equal results.

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

    Everything is computed in one pass, in float32 for every dtype. The bits of a row of the result
    depend neither on the other rows of `x` nor on the number of threads. The op is for inference:
    the native op has no gradient, only the reference implementation has one
    (`bert_tf.ops.backend("reference")`).

    Args:
        x: `[M, K]`, float32, bfloat16 or float16.
        packed: The kernel `[K, units]`, prepacked by `pack_dense`.
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
    (x, packed), epilogue = checked_dense(
        {"x": x, "packed": packed}, units, bias, activation, residual, gamma, beta, epsilon
    )
    depth = x.shape[-1]
    size = None if depth is None else depth * (-(-epilogue.units // _PANEL) * _PANEL)
    check_shapes(x, epilogue, packed=(packed, [size]))
    if not native.use_native(runs_on_gpu=False):
        return _reference(x, packed, epilogue)
    return native.library().bert_tf_fused_dense(
        x, packed, *epilogue.inputs(), **epilogue.attributes()
    )


@has_signature_of(fused_dense)
def fused_dense_reference(*args, **kwargs):
    """The reference implementation of `fused_dense`, in stock TensorFlow ops.

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
    kernel = unpack_dense(packed, known_depth(x, "fused_dense"), epilogue.units)
    z = tf.matmul(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32))  # [M, K] -> [M, units]
    return tf.cast(epilogue.reference(z), x.dtype)


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
    panels = -(-units // _PANEL)
    columns = panels * _PANEL
    blocks = []
    for begin, end in _depth_blocks(depth):
        block = tf.reshape(packed[begin * columns : end * columns], [panels, end - begin, _PANEL])
        block = tf.transpose(block, [1, 0, 2])  # [panels, k, 32] -> [k, panels, 32]
        blocks.append(tf.reshape(block, [end - begin, columns]))
    return tf.concat(blocks, axis=0)[:, :units]


def _depth_blocks(depth: int) -> list[tuple[int, int]]:
    """Returns where the blocks of a prepacked kernel begin and end along its depth.

    There are as few blocks as possible, of about equal size.
    """
    count = max(1, -(-depth // _BLOCK_DEPTH))
    edges = [depth * i // count for i in range(count + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


_NO_GRADIENT = (
    "The native op has no gradient. Train with the plain kernel (tf.matmul and other ops), or "
    "differentiate inside `with bert_tf.ops.backend('reference'):` or with BERT_TF_OPS=reference."
)
refuse_gradient("BertTf>FusedDense", "fused_dense", _NO_GRADIENT)
refuse_gradient("BertTf>PackDense", "pack_dense", _NO_GRADIENT)
