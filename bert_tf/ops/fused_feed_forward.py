"""The feed-forward network of a BERT block in bfloat16: both dense layers in one op.

    y = LayerNorm(x + activation(x W1 + b1) W2 + b2)

The result is that of two calls of `fused_dense` with kernels in bfloat16, bit for bit. The native
op computes blocks of rows from beginning to end, so that the numbers between the layers, four times
as many as in x, stay in the processor's cache.
"""

import tensorflow as tf

from bert_tf.base.signatures import has_signature_of
from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.dense_epilogue import check_vectors, checked_feed_forward, known_depth
from bert_tf.ops.differentiable_once import refuse_gradient
from bert_tf.ops.fused_dense import NO_GRADIENT, fused_dense, packed_size


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
        activation: "gelu", "gelu_new" or None.
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
    x, first_bias, second_bias, gamma, beta = checked_feed_forward(
        x, first_bias, second_bias, gamma, beta, activation, epsilon
    )
    first, second = _bfloat16_kernel("first", first), _bfloat16_kernel("second", second)
    hidden = x.shape[-1] if x.shape.rank == 2 else None
    sizes = [
        None if hidden is None else packed_size(*shape, tf.bfloat16)
        for shape in ((hidden, inner_units), (inner_units, hidden))
    ]
    vectors = {
        "first": (first, sizes[0]),
        "first_bias": (first_bias, inner_units),
        "second": (second, sizes[1]),
        "second_bias": (second_bias, hidden),
        "gamma": (gamma, hidden),
        "beta": (beta, hidden),
    }
    check_vectors(x, inner_units, vectors)
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        wide = fused_dense(x, first, inner_units, bias=first_bias, activation=activation)
        norm = {"residual": x, "gamma": gamma, "beta": beta, "epsilon": epsilon}
        units = known_depth(x, "fused_feed_forward")
        return fused_dense(wide, second, units, bias=second_bias, **norm)
    return library.bert_tf_bfloat16_feed_forward(
        x,
        first,
        first_bias,
        second,
        second_bias,
        gamma,
        beta,
        inner_units=inner_units,
        activation=activation or "none",
        epsilon=epsilon,
    )


def _bfloat16_kernel(name, packed):
    packed = tf.convert_to_tensor(packed)
    if packed.dtype != tf.bfloat16:
        raise TypeError(
            f"`{name}` must have dtype bfloat16. Received: {name}.dtype={packed.dtype.name}. Cast "
            "the kernel before `pack_dense`."
        )
    return packed


@has_signature_of(fused_feed_forward)
def fused_feed_forward_reference(*args, **kwargs):
    """Computes `fused_feed_forward` by two calls of `fused_dense_reference`.

    Example:
        >>> kernel = bert_tf.ops.pack_dense(tf.eye(2, dtype=tf.bfloat16))
        >>> x, zeros, ones = tf.constant([[1.0, 2.0]]), tf.zeros([2]), tf.ones([2])
        >>> bert_tf.ops.fused_feed_forward_reference(
        ...     x, kernel, zeros, kernel, zeros, gamma=ones, beta=zeros, inner_units=2
        ... ).numpy().round(2)
        array([[-1.,  1.]], dtype=float32)
    """
    return native.call_reference(fused_feed_forward, *args, **kwargs)


refuse_gradient("BertTf>Bfloat16FeedForward", "fused_feed_forward", NO_GRADIENT)
