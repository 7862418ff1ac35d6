"""The feed-forward network of a BERT block in 8-bit integers: both dense layers in one op.

    y = LayerNorm(x + activation(x W1 + b1) W2 + b2)

The result is that of two calls of `quantized_dense`, bit for bit. The native op computes blocks of
rows from beginning to end, so that the numbers between the layers, four times as many as in x, stay
in the processor's cache.
"""

import tensorflow as tf

from bert_tf.base.signatures import has_signature_of
from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.dense_epilogue import check_vectors, checked_feed_forward
from bert_tf.ops.differentiable_once import refuse_gradient
from bert_tf.ops.quantized_dense import QuantizedKernel, quantized_dense, quantized_kernel


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
        x: `[M, K]`, float32, bfloat16 or float16.
        first: W1 `[K, inner_units]`, from `pack_quantized_dense`.
        first_bias: b1 `[inner_units]`, with the dtype of x.
        second: W2 `[inner_units, K]`.
        second_bias: b2 `[K]`, with the dtype of x.
        gamma: `[K]`, the scale of LayerNorm, with the dtype of x.
        beta: `[K]`, the offset of LayerNorm, with the dtype of x.
        inner_units: The number of columns of W1.
        activation: "gelu", "gelu_new" or None.
        epsilon: Added to the variance in LayerNorm.

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
    x, first_bias, second_bias, gamma, beta = checked_feed_forward(
        x, first_bias, second_bias, gamma, beta, activation, epsilon
    )
    first, second = quantized_kernel("first", first), quantized_kernel("second", second)
    hidden = x.shape[-1] if x.shape.rank == 2 else None
    vectors = {
        "first.scale": (first.scale, inner_units),
        "first.smoothing": (first.smoothing, hidden),
        "first_bias": (first_bias, inner_units),
        "second.scale": (second.scale, hidden),
        "second.smoothing": (second.smoothing, inner_units),
        "second_bias": (second_bias, hidden),
        "gamma": (gamma, hidden),
        "beta": (beta, hidden),
    }
    check_vectors(x, inner_units, vectors)
    norm = {"residual": x, "gamma": gamma, "beta": beta, "epsilon": epsilon}
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        units = second.scale.shape[0]  # K
        wide = quantized_dense(x, first, inner_units, bias=first_bias, activation=activation)
        return quantized_dense(wide, second, units, bias=second_bias, **norm)
    (*first, first_static), (*second, second_static) = first, second
    return library.bert_tf_quantized_feed_forward(
        x,
        *first,
        first_bias,
        *second,
        second_bias,
        gamma,
        beta,
        [first_static],
        [second_static],
        inner_units=inner_units,
        activation=activation or "none",
        epsilon=epsilon,
    )


@has_signature_of(quantized_feed_forward)
def quantized_feed_forward_reference(*args, **kwargs):
    """Computes `quantized_feed_forward` by two calls of `quantized_dense_reference`.

    Example:
        >>> kernel = bert_tf.ops.pack_quantized_dense(*bert_tf.ops.quantize_kernel(tf.eye(2)))
        >>> x, zeros, ones = tf.constant([[1.0, 2.0]]), tf.zeros([2]), tf.ones([2])
        >>> bert_tf.ops.quantized_feed_forward_reference(
        ...     x, kernel, zeros, kernel, zeros, gamma=ones, beta=zeros, inner_units=2
        ... ).numpy().round(2)
        array([[-1.,  1.]], dtype=float32)
    """
    return native.call_reference(quantized_feed_forward, *args, **kwargs)


refuse_gradient(
    "BertTf>QuantizedFeedForward",
    "quantized_feed_forward",
    "Integers have no gradient. Train in floating point and quantize the model afterwards.",
)
