"""A dense layer on a kernel that was packed once: x W with what follows it, in one pass.

    z = x W + bias
    y = z | gelu(z) | z + residual | LayerNorm(z + residual)

The native kernel is `custom_ops/kernels/fused_dense.h`. `pack_dense` brings W into the order in
which the matmul reads it; a packed kernel is a plain vector, the same on every processor, and knows
nothing of the variable it was made from: whoever keeps one packs again when the variable changes.

Glossary: M rows, K input features (the kernel's depth), `units` output features.
"""

from __future__ import annotations

import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.arguments import float_tensors
from bert_tf.ops.dense_epilogue import DenseEpilogue, check_shapes, checked_dense
from bert_tf.ops.differentiable_once import refuse_gradient
from bert_tf.ops.fused_residual_layer_norm import LAYER_NORM_EPSILON

# The layout of a packed kernel: custom_ops/kernels/fused_dense.h, kDensePanel and kDenseDepth.
_PANEL = 32
_BLOCK_DEPTH = 256


def pack_dense(kernel: tf.Tensor, transposed: bool = False) -> tf.Tensor:
    """Packs a dense layer's kernel for `fused_dense`.

    Args:
        kernel: [K, units] float32, bfloat16 or float16.
        transposed: the kernel is [units, K], and its transpose is packed: for the gradient
            dx = dy Wᵀ, or for PyTorch's weights.

    Returns:
        [K * units] of the same dtype, units rounded up to a multiple of 32 (the rest zeros).

    Raises:
        TypeError: another dtype.
        ValueError, tf.errors.InvalidArgumentError: kernel is no matrix.

    Example:
        >>> packed = bert_tf.ops.pack_dense(tf.eye(4))
        >>> bert_tf.ops.fused_dense(tf.ones([1, 4]), packed, units=4).numpy()
        array([[1., 1., 1., 1.]], dtype=float32)
    """
    kernel = _checked_kernel(kernel)
    if native.use_native(runs_on_gpu=False):
        return native.library().bert_tf_pack_dense(kernel, transposed=bool(transposed))
    return pack_dense_reference(kernel, transposed)


def pack_dense_reference(kernel: tf.Tensor, transposed: bool = False) -> tf.Tensor:
    """`pack_dense` in stock TensorFlow ops; the same bits. K and units must be known.

    Example:
        >>> kernel = tf.random.normal([4, 4])
        >>> packed = bert_tf.ops.pack_dense_reference(kernel)
        >>> np.array_equal(bert_tf.ops.unpack_dense(packed, 4, 4), kernel)
        True
    """
    kernel = _checked_kernel(kernel)
    if transposed:
        kernel = tf.transpose(kernel)
    if not kernel.shape.is_fully_defined():
        raise ValueError(
            "Expected the reference of pack_dense to be traced with a kernel of known shape. "
            f"Received: kernel of shape {kernel.shape}"
        )
    depth, units = kernel.shape
    panels = -(-units // _PANEL)
    padded = tf.pad(kernel, [[0, 0], [0, panels * _PANEL - units]])
    blocks = [
        # [k, units] -> [panels, k, 32]
        tf.reshape(
            tf.transpose(tf.reshape(padded[begin:end], [end - begin, panels, _PANEL]), [1, 0, 2]),
            [-1],
        )
        for begin, end in _depth_blocks(depth)
    ]
    return tf.concat(blocks, axis=0)


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
    """x W + bias, and then GELU, or + residual and LayerNorm, in one pass.

    Everything is computed in float32 whatever the dtype. A row of the result has the same bits
    whatever other rows stand in x, and for every number of threads. For inference: the native op
    has no gradient (`bert_tf.ops.backend("reference")` has).

    Args:
        x: [M, K] float32, bfloat16 or float16.
        packed: what `pack_dense` made of the kernel [K, units].
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
        >>> packed = bert_tf.ops.pack_dense(tf.random.normal([768, 3072]))
        >>> y = bert_tf.ops.fused_dense(
        ...     tf.random.normal([5, 768]), packed, 3072, bias=tf.zeros([3072]), activation="gelu"
        ... )
        >>> y.shape
        TensorShape([5, 3072])
    """
    x, packed, epilogue = _checked(
        x, packed, units, bias, activation, residual, gamma, beta, epsilon
    )
    if not native.use_native(runs_on_gpu=False):
        return _reference(x, packed, epilogue)
    return native.library().bert_tf_fused_dense(
        x, packed, *epilogue.inputs(), **epilogue.attributes()
    )


def fused_dense_reference(
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
    """`fused_dense` in stock TensorFlow ops: on any device, under XLA, twice differentiable. It
    unpacks the kernel first; K must be known.

    Example:
        >>> packed = bert_tf.ops.pack_dense(2.0 * tf.eye(2))
        >>> x, bias = tf.ones([1, 2]), tf.constant([0.0, 1.0])
        >>> bert_tf.ops.fused_dense_reference(x, packed, units=2, bias=bias).numpy()
        array([[2., 3.]], dtype=float32)
    """
    return _reference(*_checked(x, packed, units, bias, activation, residual, gamma, beta, epsilon))


def _checked_kernel(kernel) -> tf.Tensor:
    (kernel,) = float_tensors(kernel=kernel)
    if kernel.shape.rank not in (None, 2):
        raise ValueError(
            f"Expected kernel to be a matrix, [K, units]. Received: kernel of shape {kernel.shape}"
        )
    return kernel


def _checked(x, packed, units, bias, activation, residual, gamma, beta, epsilon) -> tuple:
    (x, packed), epilogue = checked_dense(
        {"x": x, "packed": packed}, units, bias, activation, residual, gamma, beta, epsilon
    )
    depth = x.shape[-1] if x.shape.rank is not None else None
    size = None if depth is None else depth * (-(-epilogue.units // _PANEL) * _PANEL)
    check_shapes(x, epilogue, packed=(packed, [size]))
    return x, packed, epilogue


def _reference(x, packed, epilogue: DenseEpilogue) -> tf.Tensor:
    if x.shape.rank is None or x.shape[-1] is None:
        raise ValueError(
            "Expected the reference of fused_dense to be traced with a known last dimension of x. "
            "Received: x of unknown last dimension"
        )
    kernel = unpack_dense(packed, x.shape[-1], epilogue.units)
    z = tf.matmul(tf.cast(x, tf.float32), tf.cast(kernel, tf.float32))  # [M, K] -> [M, units]
    return tf.cast(epilogue.reference(z), x.dtype)


def unpack_dense(packed: tf.Tensor, depth: int, units: int) -> tf.Tensor:
    """The kernel that `pack_dense` packed.

    Args:
        packed: What `pack_dense` returned.
        depth: K, the number of input features.
        units: The number of columns of the kernel.

    Returns:
        [K, units] of the same dtype.

    Example:
        >>> packed = bert_tf.ops.pack_dense(tf.eye(2))
        >>> bert_tf.ops.unpack_dense(packed, 2, 2).numpy()
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    panels = -(-units // _PANEL)
    blocks = [
        # [panels, k, 32] -> [k, units]
        tf.reshape(
            tf.transpose(
                tf.reshape(
                    packed[begin * panels * _PANEL : end * panels * _PANEL],
                    [panels, end - begin, _PANEL],
                ),
                [1, 0, 2],
            ),
            [end - begin, panels * _PANEL],
        )
        for begin, end in _depth_blocks(depth)
    ]
    return tf.concat(blocks, axis=0)[:, :units]


def _depth_blocks(depth: int) -> list[tuple[int, int]]:
    """Where the blocks of a packed kernel's depth begin and end: as few even ones as can be."""
    count = max(1, -(-depth // _BLOCK_DEPTH))
    edges = [depth * i // count for i in range(count + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


_NO_GRADIENT = (
    "The native op has no gradient: train with the unpacked kernel (tf.matmul and other ops), or "
    "differentiate inside `with bert_tf.ops.backend('reference'):` or with BERT_TF_OPS=reference."
)
refuse_gradient("BertTf>FusedDense", "fused_dense", _NO_GRADIENT)
refuse_gradient("BertTf>PackDense", "pack_dense", _NO_GRADIENT)
