"""LayerNorm(residual + dropout(x + bias)) in one pass: the end of both halves of a BERT block.

The native kernel is `custom_ops/kernels/layer_norm/fused_residual_layer_norm.h`. The dropout mask
is a function of the seed (`bert_tf/ops/philox.py`). It is not stored: the gradient draws it again.

Reference: Ba, Kiros and Hinton, "Layer normalization", arXiv 1607.06450; post-LN as in
google-research/bert. RMSNorm: Zhang and Sennrich, "Root mean square layer normalization", arXiv
1910.07467.
"""

import tensorflow as tf

from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.ops import native
from bert_tf.ops.native import check_shapes, dropout_arguments, float_tensors, refuse_second_order
from bert_tf.ops.philox import dropout

# A row whose largest absolute value is outside of these limits is first scaled to a maximum of 1,
# because sums of squares of such values leave the range of float32. (The native kernel computes
# such rows in float64.)
_LARGEST_UNSCALED = 1e15
_SMALLEST_UNSCALED = 1e-9  # squared rounding errors of such values are still normal numbers
_SMALLEST_VARIANCE = 1e-37  # of a scaled row; avoids 0 * inf for a constant row


def fused_residual_layer_norm(
    x: tf.Tensor,
    residual: tf.Tensor | None,
    bias: tf.Tensor | None,
    gamma: tf.Tensor,
    beta: tf.Tensor | None,
    epsilon: float = LAYER_NORM_EPSILON,
    dropout_rate: float = 0.0,
    seed: int | tf.Tensor | None = None,
    is_rms: bool = False,
) -> tf.Tensor:
    """Computes LayerNorm(residual + dropout(x + bias)) over the last dimension.

    Everything is computed in float32 for every dtype. Sums over rows (the gradients of bias, gamma
    and beta) have the same bits for every number of threads. The native op can be differentiated
    once. A gradient of the gradient needs the reference implementation
    (`bert_tf.ops.backend("reference")`).

    Args:
        x: `[..., H]`, float32, bfloat16 or float16.
        residual: A tensor with the shape of `x`, or None.
        bias: `[H]`, or None for no bias.
        gamma: `[H]`, the scale.
        beta: `[H]`, the offset, or None for zeros.
        epsilon: Added to the variance.
        dropout_rate: The fraction of x + bias that is set to zero, in [0, 1). The rest is scaled
            by 1 / (1 - dropout_rate). Pass 0 when not training.
        seed: An int or a scalar int64 tensor. Required for dropout; pass another seed for each
            call in a step and for each step.
        is_rms: Whether to compute RMSNorm, which subtracts no mean. The native op computes it on
            a CPU only.

    Returns:
        A tensor with the shape and dtype of `x`.

    Raises:
        TypeError: If a dtype is not supported, or if the dtypes differ.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match, `dropout_rate` is
            outside of [0, 1) or has no seed, or `epsilon` is negative.

    Example:
        >>> y = bert_tf.ops.fused_residual_layer_norm(
        ...     x=tf.random.normal([2, 8]),
        ...     residual=tf.zeros([2, 8]),
        ...     bias=None,
        ...     gamma=tf.ones([8]),
        ...     beta=tf.zeros([8]),
        ...     dropout_rate=0.1,
        ...     seed=7,
        ... )
        >>> y.shape
        TensorShape([2, 8])
    """
    x, residual, bias, gamma, beta = float_tensors(
        x=x, residual=residual, bias=bias, gamma=gamma, beta=beta
    )
    beta = tf.zeros_like(gamma) if beta is None else beta
    check_shapes(x, residual, bias=bias, gamma=gamma, beta=beta)
    dropout_rate, seed = dropout_arguments(dropout_rate, seed)
    epsilon = float(epsilon)
    if not epsilon >= 0.0:
        raise ValueError(f"`epsilon` must be at least 0. Received: epsilon={epsilon}")
    library = native.used_library(not is_rms, "fused_residual_layer_norm")
    if library is None:
        return _reference(x, residual, bias, gamma, beta, epsilon, dropout_rate, seed, is_rms)
    y, _, _ = library.bert_tf_fused_residual_layer_norm(
        x,
        [] if residual is None else [residual],
        [] if bias is None else [bias],
        gamma,
        beta,
        seed,
        epsilon=epsilon,
        dropout_rate=dropout_rate,
        is_rms=bool(is_rms),
    )
    return y


fused_residual_layer_norm_reference = native.reference_of(
    fused_residual_layer_norm,
    """It runs on any device and under XLA, and is twice differentiable. It draws the same dropout
    mask as the native op.""",
)


def _reference(x, residual, bias, gamma, beta, epsilon, dropout_rate, seed, is_rms) -> tf.Tensor:
    z = tf.cast(x, tf.float32)
    if bias is not None:
        z += tf.cast(bias, tf.float32)
    z = dropout(z, dropout_rate, seed)
    if residual is not None:
        z += tf.cast(residual, tf.float32)
    # A row times c, with epsilon times c², normalizes to the same numbers.
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(z), axis=-1, keepdims=True))
    extreme = (largest > _LARGEST_UNSCALED) | ((largest < _SMALLEST_UNSCALED) & (largest > 0.0))
    scale = tf.where(extreme & tf.math.is_finite(largest), largest, tf.ones_like(largest))
    z /= scale
    scaled_epsilon = tf.where(
        scale == 1.0, epsilon, tf.maximum(epsilon / scale / scale, _SMALLEST_VARIANCE)
    )
    mean = 0.0 if is_rms else tf.reduce_mean(z, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(z, mean), axis=-1, keepdims=True)
    normalized = (z - mean) * tf.math.rsqrt(variance + scaled_epsilon)
    if epsilon == 0.0 and not is_rms:
        # A row of equal numbers is 0 / 0, even if its mean was rounded.
        is_constant = tf.reduce_all(tf.equal(z, z[..., :1]), axis=-1, keepdims=True)
        normalized *= tf.where(is_constant, float("nan"), 1.0)
    y = normalized * tf.cast(gamma, tf.float32) + tf.cast(beta, tf.float32)
    return tf.cast(y, x.dtype)


@tf.RegisterGradient("BertTf>FusedResidualLayerNorm")
def _fused_residual_layer_norm_gradient(
    op: tf.Operation, dy: tf.Tensor, _: tf.Tensor, __: tf.Tensor
) -> list[tf.Tensor | None]:
    num_residual = op.get_attr("num_residual")
    num_bias = op.get_attr("num_bias")
    dropout_rate = op.get_attr("dropout_rate")
    inputs = list(op.inputs)
    x, gamma, seed = inputs[0], inputs[-3], inputs[-1]
    residual = inputs[1 : 1 + num_residual]
    bias = inputs[1 + num_residual : 1 + num_residual + num_bias]
    _, mean, rstd = op.outputs
    # Two layers read y: a dense layer, and the next residual connection. In a graph, the op adds
    # their two gradients, so that nothing computes the tensor of their sum.
    is_sum = tf.is_symbolic_tensor(dy) and dy.op.type == "AddN" and len(dy.op.inputs) == 2
    dy, *other_dy = dy.op.inputs if is_sum else [dy]
    dx, dresidual, dbias, dgamma, dbeta = native.library().bert_tf_fused_residual_layer_norm_grad(
        dy,
        x,
        residual,
        bias,
        gamma,
        mean,
        rstd,
        seed,
        other_dy,
        num_dresidual=num_residual if dropout_rate > 0.0 else 0,
        dropout_rate=dropout_rate,
        is_rms=op.get_attr("is_rms"),
    )
    if num_residual and not dresidual:
        dresidual = [dx]  # without dropout both are equal
    return [dx, *dresidual, *dbias, dgamma, dbeta, None]


refuse_second_order("BertTf>FusedResidualLayerNormGrad", "fused_residual_layer_norm")
