"""gelu(x + bias) in one pass.

    gelu(s) = s * Phi(s)                                              approximate=False ("erf")
    gelu(s) = s * sigmoid(2 sqrt(2 / pi) (s + 0.044715 s^3))          approximate=True ("tanh")

The native kernel is `custom_ops/kernels/gelu/fused_bias_gelu.h`. Its gradient recomputes the slope
of the activation from x and bias, so that a training step stores one tensor of this width and not
three.

Reference: Hendrycks and Gimpel, arXiv 1606.08415.
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.native import check_shapes, float_tensors, refuse_second_order

_SQRT_HALF = math.sqrt(0.5)
_TWO_SQRT_2_OVER_PI = 2.0 * math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715  # google-research/bert modeling.py, gelu

# Beyond these, activation(s) / s is 0 or 1 in float32. The bound avoids the product of infinity and
# zero.
_LARGEST = {"gelu": 15.0, "gelu_new": 11.0, "silu": 110.0}

_tflite_compatible = contextvars.ContextVar("tflite_compatible", default=False)


@contextlib.contextmanager
def tflite_compatible() -> Iterator[None]:
    """Traces the ops inside the block as operations that the TFLite converter supports.

    This is `backend("reference")` with `tf.nn.gelu`, which the converter turns into TFLite's GELU.
    TFLite has `tf.math.erfc` neither as a builtin nor as a select operation. As a result, GELU
    loses relative precision where its value is near 0: below -3, results are off by up to 2e-7.

    Example:
        >>> with bert_tf.ops.tflite_compatible():
        ...     function = tf.function(lambda x: bert_tf.ops.fused_bias_gelu(x, tf.zeros([4])))
        ...     concrete = function.get_concrete_function(tf.TensorSpec([2, 4]))
        >>> converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
        >>> interpreter = tf.lite.Interpreter(model_content=converter.convert())
        >>> interpreter.get_output_details()[0]["shape"]
        array([2, 4], dtype=int32)
    """
    token = _tflite_compatible.set(True)
    try:
        with native.backend("reference"):
            yield
    finally:
        _tflite_compatible.reset(token)


def fused_bias_gelu(x: tf.Tensor, bias: tf.Tensor, approximate: bool = False) -> tf.Tensor:
    """Computes gelu(x + bias).

    The sum and the activation are computed in float32 for every dtype. Float32 results of the
    native op are within 8 ulp of the GELU of the rounded sum, wherever they are normal numbers;
    the GELU of -inf is 0. The native op can be differentiated once. A gradient of the gradient
    needs the reference implementation (`bert_tf.ops.backend("reference")`).

    Args:
        x: `[..., F]`, float32, bfloat16 or float16.
        bias: `[F]`, with the dtype of `x`.
        approximate: Whether to compute the tanh form instead of the exact one.

    Returns:
        A tensor with the shape and dtype of `x`.

    Raises:
        TypeError: If a dtype is not supported, or if the dtypes differ.
        ValueError, tf.errors.InvalidArgumentError: If `x` is a scalar, or if the length of `bias`
            is not the last dimension of `x`.

    Example:
        >>> y = bert_tf.ops.fused_bias_gelu(tf.constant([[1.0, -1.0]]), tf.constant([0.0, 0.0]))
        >>> y.numpy().round(4)
        array([[ 0.8413, -0.1587]], dtype=float32)
    """
    x, bias = float_tensors(x=x, bias=bias)
    check_shapes(x, bias=bias)
    library = native.used_library(op="fused_bias_gelu")
    if library is not None:
        return library.bert_tf_fused_bias_gelu(x, bias, approximate=bool(approximate))
    s = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
    return tf.cast(activation_reference(s, "gelu_new" if approximate else "gelu"), x.dtype)


def activation_reference(s: tf.Tensor, activation: str) -> tf.Tensor:
    """Computes "gelu", "gelu_new" or "silu" of a float32 tensor in stock TensorFlow ops."""
    largest = _LARGEST[activation]
    above = tf.where(s < -largest, -largest, s)  # tf.where: NaN passes through
    bounded = tf.where(above > largest, largest, above)
    if activation == "silu":
        return above * tf.math.sigmoid(bounded)
    if activation == "gelu_new":
        cubic = bounded + _TANH_CUBIC * (bounded * bounded * bounded)
        return above * tf.math.sigmoid(_TWO_SQRT_2_OVER_PI * cubic)
    if _tflite_compatible.get():
        return tf.nn.gelu(above)
    # Not 1 + erf, which loses all digits of the negative tail.
    return above * (0.5 * tf.math.erfc(-_SQRT_HALF * bounded))


fused_bias_gelu_reference = native.reference_of(
    fused_bias_gelu,
    """It runs on any device and under XLA, and is twice differentiable. Float32 results stay
    precise in the negative tail, except for the rounding of the exponential's argument: the error
    is 10 to 16 ulp at -3 and some hundred ulp at -10. Below -12.5 results may be zero.""",
)


@tf.RegisterGradient("BertTf>FusedBiasGelu")
def _fused_bias_gelu_gradient(op: tf.Operation, dy: tf.Tensor) -> list[tf.Tensor]:
    x, bias = op.inputs
    dx, dbias = native.library().bert_tf_fused_bias_gelu_grad(
        dy, x, bias, approximate=op.get_attr("approximate")
    )
    return [dx, dbias]


refuse_second_order("BertTf>FusedBiasGeluGrad", "fused_bias_gelu")
