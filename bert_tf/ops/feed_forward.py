"""The feed-forward network of a BERT block in bfloat16 or int8: both dense layers in one op.

    y = LayerNorm(x + activation(x W1 + b1) W2 + b2)

The result is that of two calls of `fused_dense` with kernels in bfloat16, or of `quantized_dense`,
bit for bit. The native ops compute blocks of rows from beginning to end, so that the numbers
between the layers, four times as many as in x, stay in the processor's cache.
"""

import tensorflow as tf

from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.fused_dense import (
    NO_GRADIENT,
    check_arguments,
    fused_dense,
    known_depth,
    packed_size,
)
from bert_tf.ops.quantized_dense import QuantizedKernel, quantized_dense, quantized_kernel


def fused_feed_forward(
    x: tf.Tensor,
    first: tf.Tensor,
    first_bias: tf.Tensor,
    second: tf.Tensor,
    second_bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    inner_units: int,
    activation: str | None = "gelu",
    epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
    """Computes LayerNorm(x + activation(x W1 + b1) W2 + b2) with kernels in bfloat16.

    Args:
        x: `[M, K]`, float32, bfloat16 or float16.
        first: W1 `[K, inner_units]` in bfloat16, from `pack_dense`.
        first_bias: b1 `[inner_units]`, with the dtype of x.
        second: W2 `[inner_units, K]` in bfloat16, from `pack_dense`.
        second_bias: b2 `[K]`, with the dtype of x.
        gamma: `[K]`, the scale of LayerNorm, with the dtype of x.
        beta: `[K]`, the offset of LayerNorm, with the dtype of x.
        inner_units: The number of columns of W1.
        activation: "gelu", "gelu_new", "silu" or None.
        epsilon: Added to the variance in LayerNorm.

    Returns:
        `[M, K]` with the dtype of x.

    Raises:
        TypeError, ValueError, tf.errors.InvalidArgumentError: See `fused_dense`.
        LookupError: If a gradient is asked for.

    Example:
        >>> kernel = bert_tf.ops.pack_dense(tf.eye(2, dtype=tf.bfloat16))
        >>> x, zeros, ones = tf.constant([[1.0, 2.0]]), tf.zeros([2]), tf.ones([2])
        >>> bert_tf.ops.fused_feed_forward(
        ...     x, kernel, zeros, kernel, zeros, gamma=ones, beta=zeros, inner_units=2
        ... ).numpy().round(2)
        array([[-1.,  1.]], dtype=float32)

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.3; `bert_tf.ops.fused_dense`.
    """
    x, *vectors = _tensors(x, first_bias, second_bias, gamma, beta, activation, epsilon)
    first, second = _bfloat16_kernel("first", first), _bfloat16_kernel("second", second)
    hidden = x.shape[-1] if x.shape.rank == 2 else None
    sizes = [
        None if hidden is None else packed_size(*shape, tf.bfloat16)
        for shape in ((hidden, inner_units), (inner_units, hidden))
    ]
    kernels = {"first": (first, sizes[0]), "second": (second, sizes[1])}
    _check_sizes(x, inner_units, vectors, kernels)
    first_bias, second_bias, gamma, beta = vectors
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        wide = fused_dense(x, first, inner_units, bias=first_bias, activation=activation)
        norm = {"residual": x, "gamma": gamma, "beta": beta, "epsilon": epsilon}
        units = known_depth(x, "fused_feed_forward")
        return fused_dense(wide, second, units, bias=second_bias, **norm)
    attributes = _attributes(inner_units, activation, epsilon)
    inputs = first, first_bias, second, second_bias, gamma, beta
    return library.bert_tf_bfloat16_feed_forward(x, *inputs, **attributes)


def quantized_feed_forward(
    x: tf.Tensor,
    first: QuantizedKernel,
    first_bias: tf.Tensor,
    second: QuantizedKernel,
    second_bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    inner_units: int,
    activation: str | None = "gelu",
    epsilon: float = LAYER_NORM_EPSILON,
) -> tf.Tensor:
    """Computes LayerNorm(x + activation(x W1 + b1) W2 + b2) with quantized kernels.

    Args:
        first: W1 `[K, inner_units]`, from `pack_quantized_dense`.
        second: W2 `[inner_units, K]`, from `pack_quantized_dense`.
        x, first_bias, second_bias, gamma, beta, inner_units, activation, epsilon: See
            `fused_feed_forward`.

    Returns:
        `[M, K]` with the dtype of x.

    Raises:
        TypeError, ValueError, tf.errors.InvalidArgumentError: See `quantized_dense`.
        LookupError: If a gradient is asked for.

    Example:
        >>> kernel = bert_tf.ops.pack_quantized_dense(*bert_tf.ops.quantize_kernel(tf.eye(2)))
        >>> x, zeros, ones = tf.constant([[1.0, 2.0]]), tf.zeros([2]), tf.ones([2])
        >>> bert_tf.ops.quantized_feed_forward(
        ...     x, kernel, zeros, kernel, zeros, gamma=ones, beta=zeros, inner_units=2
        ... ).numpy().round(2)
        array([[-1.,  1.]], dtype=float32)

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.3; `bert_tf.ops.quantized_dense`.
    """
    x, *vectors = _tensors(x, first_bias, second_bias, gamma, beta, activation, epsilon)
    first, second = quantized_kernel("first", first), quantized_kernel("second", second)
    hidden = x.shape[-1] if x.shape.rank == 2 else None
    kernels = {
        "first.scale": (first.scale, inner_units),
        "first.smoothing": (first.smoothing, hidden),
        "second.scale": (second.scale, hidden),
        "second.smoothing": (second.smoothing, inner_units),
    }
    _check_sizes(x, inner_units, vectors, kernels)
    first_bias, second_bias, gamma, beta = vectors
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        units = second.scale.shape[0]  # K
        wide = quantized_dense(x, first, inner_units, bias=first_bias, activation=activation)
        norm = {"residual": x, "gamma": gamma, "beta": beta, "epsilon": epsilon}
        return quantized_dense(wide, second, units, bias=second_bias, **norm)
    attributes = _attributes(inner_units, activation, epsilon)
    (*first, first_static), (*second, second_static) = first, second
    inputs = *first, first_bias, *second, second_bias, gamma, beta, [first_static], [second_static]
    return library.bert_tf_quantized_feed_forward(x, *inputs, **attributes)


def _tensors(x, first_bias, second_bias, gamma, beta, activation, epsilon) -> list[tf.Tensor]:
    """Returns x, the biases, gamma and beta as tensors of one dtype."""
    biases = {"first_bias": first_bias, "second_bias": second_bias}
    tensors = native.float_tensors(x=x, **biases, gamma=gamma, beta=beta)
    check_arguments(tensors[0], activation, epsilon)
    return tensors


def _check_sizes(x, inner_units, vectors, kernels) -> None:
    """Raises `ValueError` for vectors that do not have their size, as far as the shapes are known.

    `vectors` are the biases, gamma and beta; `kernels` has others by name, with their sizes.
    """
    hidden = x.shape[-1] if x.shape.rank == 2 else None
    names = ("first_bias", "second_bias", "gamma", "beta")
    sized = zip(vectors, (inner_units, hidden, hidden, hidden))
    given = f"x.shape={x.shape} and inner_units={inner_units}"
    for name, (vector, size) in {**kernels, **dict(zip(names, sized))}.items():
        native.check_shape(name, vector, [size], given)


def _attributes(inner_units, activation, epsilon):
    return {"inner_units": inner_units, "activation": activation or "none", "epsilon": epsilon}


def _bfloat16_kernel(name, packed):
    packed = tf.convert_to_tensor(packed)
    if packed.dtype != tf.bfloat16:
        raise TypeError(
            f"`{name}` must have dtype bfloat16. Received: {name}.dtype={packed.dtype.name}. Cast "
            "the kernel before `pack_dense`."
        )
    return packed


fused_feed_forward_reference = native.reference_of(
    fused_feed_forward, "It calls `fused_dense_reference` twice."
)
quantized_feed_forward_reference = native.reference_of(
    quantized_feed_forward, "It calls `quantized_dense_reference` twice."
)
native.refuse_gradient("BertTf>Bfloat16FeedForward", "fused_feed_forward", NO_GRADIENT)
native.refuse_gradient(
    "BertTf>QuantizedFeedForward", "quantized_feed_forward", native.INTEGERS_HAVE_NO_GRADIENT
)
