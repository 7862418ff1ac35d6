"""The gate of a feed-forward layer (GeGLU, SwiGLU) in one pass.

    y = activation(first half of x) * second half of x

The native kernel is `custom_ops/kernels/dense/fused_gate.h`. Its gradient computes the activation
again from x, so that a training step stores only x and y. In inference, `fused_dense` computes the
gate together with the matmul.

Reference: Shazeer 2020 (arXiv 2002.05202).
"""

import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.fused_bias_gelu import activation_reference
from bert_tf.ops.native import check_shapes, float_tensors, refuse_second_order

_ACTIVATIONS = ("gelu", "gelu_new", "silu")


def fused_gate(x: tf.Tensor, activation: str) -> tf.Tensor:
    """Multiplies the second half of the columns by the activated first half.

    The result is computed in float32 for every dtype. Float32 activations of the native op are
    within 8 ulp, wherever they are normal numbers; the activation of -inf is 0. The native op can
    be differentiated once. A gradient of the gradient needs the reference implementation
    (`bert_tf.ops.backend("reference")`).

    Args:
        x: `[..., 2 U]`, float32, bfloat16 or float16.
        activation: "gelu" (erf), "gelu_new" (tanh) or "silu".

    Returns:
        `[..., U]` with the dtype of `x`.

    Raises:
        TypeError: If the dtype is not supported.
        ValueError, tf.errors.InvalidArgumentError: If `activation` is unknown, or `x` is a scalar
            or has an odd number of columns.

    Example:
        >>> y = bert_tf.ops.fused_gate(tf.constant([[1.0, -1.0, 2.0, 3.0]]), "silu")
        >>> y.numpy().round(4)
        array([[ 1.4621, -0.8068]], dtype=float32)
    """
    (x,) = float_tensors(x=x)
    check_shapes(x)
    if activation not in _ACTIVATIONS:
        raise ValueError(
            "`activation` must be 'gelu', 'gelu_new' or 'silu'. "
            f"Received: activation={activation!r}"
        )
    if x.shape.rank and (x.shape[-1] or 0) % 2:
        raise ValueError(f"`x` must have an even number of columns. Received: x.shape={x.shape}")
    library = native.used_library(op="fused_gate")
    if library is not None:
        return library.bert_tf_fused_gate(x, activation=activation)
    first, second = tf.split(tf.cast(x, tf.float32), 2, axis=-1)
    return tf.cast(activation_reference(first, activation) * second, x.dtype)


fused_gate_reference = native.reference_of(
    fused_gate,
    """It runs on any device and under XLA, and is twice differentiable. Its activations are as
    precise as that of `fused_bias_gelu_reference`.""",
)


@tf.RegisterGradient("BertTf>FusedGate")
def _fused_gate_gradient(op: tf.Operation, dy: tf.Tensor) -> tf.Tensor:
    (x,) = op.inputs
    return native.library().bert_tf_fused_gate_grad(dy, x, activation=op.get_attr("activation"))


refuse_second_order("BertTf>FusedGateGrad", "fused_gate")
