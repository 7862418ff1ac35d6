"""A dense layer with a prepacked kernel: x W and the operations after it, in one pass.

    z = x W + bias
    y = activation(z) | activation(first half of z) * second half
      | z + residual | LayerNorm(z + residual)

The native kernels are `custom_ops/kernels/dense/fused_dense.h` and, for W in bfloat16,
`bfloat16_dense.h`. `pack_dense` prepacks W: it reorders W as the matmul reads it. A prepacked
kernel is a plain vector and is the same on every processor. It is not connected to the variable
from which it was made, and must be prepacked again when the variable changes. `DenseEpilogue` is
what follows the matmul, also in `quantized_dense`.

Glossary: M rows, K input features (the kernel's depth), `units` output features.
"""

import dataclasses
import math

import tensorflow as tf

from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.fused_bias_gelu import activation_reference
from bert_tf.ops.fused_residual_layer_norm import fused_residual_layer_norm_reference
from bert_tf.ops.native import float_tensors, refuse_gradient

FUSED_ACTIVATIONS = (None, "gelu", "gelu_new", "silu")
# The layout of a prepacked kernel: kDensePanel and kDenseDepth of fused_dense.h, and the rows in a
# word of bfloat16_dense.h.
_PANEL = 32
_BLOCK_DEPTH = 256
_BFLOAT16_ROWS = 2
GATED_UNITS = 2 * _PANEL  # with a gate, the units are a multiple of this


@dataclasses.dataclass(frozen=True)
class DenseEpilogue:
    """The checked arguments, as `fused_dense` documents them."""

    units: int
    bias: tf.Tensor | None
    activation: str | None
    residual: tf.Tensor | None
    gamma: tf.Tensor | None
    beta: tf.Tensor | None
    epsilon: float
    is_gated: bool

    def inputs(self) -> list[list[tf.Tensor]]:
        """Returns the native ops' optional inputs."""
        tensors = (self.bias, self.residual, self.gamma, self.beta)
        return [[] if tensor is None else [tensor] for tensor in tensors]

    def attributes(self) -> dict:
        """Returns the native ops' attributes."""
        activation = self.activation or "none"
        options = {"epsilon": self.epsilon, "is_gated": self.is_gated}
        return {"units": self.units, "activation": activation, **options}

    def reference(self, z: tf.Tensor) -> tf.Tensor:
        """Computes y from x W, [M, units] float32, in stock TensorFlow ops."""
        bias, residual, gamma, beta = (
            None if tensor is None else tf.cast(tensor, tf.float32)
            for tensor in (self.bias, self.residual, self.gamma, self.beta)
        )
        z = z if bias is None else z + bias
        if gamma is not None:
            return fused_residual_layer_norm_reference(z, residual, None, gamma, beta, self.epsilon)
        if self.is_gated:
            first, second = tf.split(z, 2, axis=1)
            return self._activated(first) * second
        z = self._activated(z)
        return z if residual is None else z + residual

    def _activated(self, z):
        return z if self.activation is None else activation_reference(z, self.activation)


def checked_dense(
    x, units, bias, activation, residual, gamma, beta, epsilon, is_gated
) -> tuple[tf.Tensor, DenseEpilogue]:
    """Returns x and the epilogue, all of one dtype.

    Shapes other than the rank of x are not checked here: see `check_dense_shapes`. Raises
    `TypeError` if a dtype is not float32, bfloat16 or float16, or if the dtypes differ, and
    `ValueError` if x is not a matrix, the activation is unknown, it or a gate is combined with a
    residual or LayerNorm, the units cannot be gated, one of gamma and beta is missing, or epsilon
    is negative.
    """
    x, bias, residual, gamma, beta = float_tensors(
        x=x, bias=bias, residual=residual, gamma=gamma, beta=beta
    )
    check_arguments(x, activation, epsilon)
    if activation is not None and (residual is not None or gamma is not None):
        raise ValueError(
            "`activation` must be None if `residual` or `gamma` is given. "
            f"Received: activation={activation!r}"
        )
    if is_gated and (residual is not None or gamma is not None):
        raise ValueError(
            "`is_gated` must be False if `residual` or `gamma` is given. Received: is_gated=True"
        )
    if is_gated and units % GATED_UNITS:
        raise ValueError(
            f"`units` must be a multiple of {GATED_UNITS} with `is_gated`. Received: units={units}"
        )
    if (gamma is None) != (beta is None):
        raise ValueError(
            "`gamma` and `beta` must be given together. "
            f"Received: {'gamma' if gamma is None else 'beta'}=None"
        )
    options = bias, activation, residual, gamma, beta, float(epsilon), bool(is_gated)
    return x, DenseEpilogue(int(units), *options)


def check_arguments(x: tf.Tensor, activation: str | None, epsilon: float) -> None:
    """Raises `ValueError` for what `checked_dense` and the feed-forward ops both refuse."""
    if activation not in FUSED_ACTIVATIONS:
        raise ValueError(
            "`activation` must be None, 'gelu', 'gelu_new' or 'silu'. "
            f"Received: activation={activation!r}"
        )
    if not epsilon >= 0.0:
        raise ValueError(f"`epsilon` must be at least 0. Received: epsilon={epsilon}")
    if x.shape.rank not in (None, 2):
        raise ValueError(f"`x` must have shape [M, K]. Received: x.shape={x.shape}")


def check_dense_shapes(x: tf.Tensor, epilogue: DenseEpilogue, **others) -> None:
    """Raises `ValueError` for tensors that do not fit x, as far as the shapes are known.

    `others` are tensors in addition to those of the epilogue, as tuples (tensor, expected shape).
    """
    units, given = epilogue.units, f"x.shape={x.shape} and units={epilogue.units}"
    for name, (tensor, shape) in others.items():
        native.check_shape(name, tensor, shape, given)
    native.check_shape("residual", epilogue.residual, [x.shape[0], units], given)
    for name in ("bias", "gamma", "beta"):
        native.check_shape(name, getattr(epilogue, name), [units], given)


def known_depth(x: tf.Tensor, function: str) -> int:
    """Returns the last dimension of x. Raises `ValueError` if it is not known."""
    if x.shape[-1] is None:
        raise ValueError(
            f"`x` must have a known last dimension in the reference implementation of `{function}`."
            f" Received: x.shape={x.shape}"
        )
    return x.shape[-1]


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


pack_dense_reference = native.reference_of(
    pack_dense,
    """The results are equal. The shape of `kernel` must be known when the function is traced.""",
)


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
    is_gated: bool = False,
) -> tf.Tensor:
    """Computes x W + bias, and then an activation or the sum with a residual and LayerNorm.

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
        activation: The activation of x W + bias: None, "gelu" (erf), "gelu_new" (tanh) or "silu".
            It cannot be combined with `residual` or `gamma`.
        residual: `[M, units]`, added to x W + bias, or None.
        gamma: `[units]`, the scale of LayerNorm. None means no LayerNorm.
        beta: `[units]`, the offset of LayerNorm. Required with `gamma`.
        epsilon: Added to the variance in LayerNorm.
        is_gated: Whether the second half of the columns of x W + bias are factors of the first
            half, which is activated (GLU; Shazeer 2020, arXiv 2002.05202). `units` is then a
            multiple of 64, and there is no `residual` or `gamma`.

    Returns:
        `[M, units]`, or `[M, units / 2]` with a gate, with the dtype of `x`.

    Raises:
        TypeError: If a dtype is not supported, or if the dtypes differ.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match, `activation` is
            unknown, it or a gate is combined with a residual or LayerNorm, one of `gamma` and
            `beta` is missing, `epsilon` is negative, or `units` cannot be gated.

    Example:
        >>> packed = bert_tf.ops.pack_dense(tf.random.normal([768, 3072]))
        >>> y = bert_tf.ops.fused_dense(
        ...     tf.random.normal([5, 768]), packed, 3072, bias=tf.zeros([3072]), activation="gelu"
        ... )
        >>> y.shape
        TensorShape([5, 3072])
    """
    options = bias, activation, residual, gamma, beta, epsilon, is_gated
    x, epilogue = checked_dense(x, units, *options)
    packed = tf.convert_to_tensor(packed, x.dtype if isinstance(packed, (list, tuple)) else None)
    if packed.dtype not in (x.dtype, tf.bfloat16):
        raise TypeError(
            f"`packed` must have the dtype of `x`, {x.dtype.name}, or bfloat16. "
            f"Received: packed.dtype={packed.dtype.name}. Cast the kernel before `pack_dense`."
        )
    depth = x.shape[-1]
    size = None if depth is None else packed_size(depth, epilogue.units, packed.dtype)
    check_dense_shapes(x, epilogue, packed=(packed, [size]))
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        return _reference(x, packed, epilogue)
    is_bfloat16 = packed.dtype == tf.bfloat16
    op = library.bert_tf_bfloat16_dense if is_bfloat16 else library.bert_tf_fused_dense
    return op(x, packed, *epilogue.inputs(), **epilogue.attributes())


fused_dense_reference = native.reference_of(
    fused_dense,
    """It runs on any device and under XLA, and is twice differentiable. It unpacks the kernel
    first, so K must be known when the function is traced.""",
)


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
