"""One step of Adam with decoupled weight decay, in one pass over memory; the norm of gradients.

    g = gradient_scale * gradient
    m = m + (1 - beta_1) * (g - m)
    v = v + (1 - beta_2) * (g² - v)
    variable = variable - learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * variable)

The native kernel is `custom_ops/kernels/optimizer/adam_weight_decay.h`.

Reference: google-research/bert optimization.py; Loshchilov and Hutter, arXiv 1711.05101.
"""

from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from bert_tf.errors import user_error
from bert_tf.ops import native


def adam_weight_decay(
    variable: tf.Variable,
    mean: tf.Variable,
    square: tf.Variable,
    gradient: tf.Tensor,
    learning_rate: tf.Tensor,
    gradient_scale: tf.Tensor | None = None,
    weight_decay: float = 0.0,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    steps: tf.Tensor | None = None,
) -> None:
    """Updates a variable and its two running means in place.

    The native op updates float32 variables. float64 variables are updated by the reference
    implementation. bfloat16 and float16 variables are not supported, because epsilon and
    v would round to zero: the optimizers keep a float32 copy of such a variable.

    Args:
        variable: A variable of any shape, float32 or float64.
        mean: m, with the shape and dtype of `variable`.
        square: v, with the shape and dtype of `variable`.
        gradient: The gradient, with the shape of `variable`, in any floating-point dtype.
        learning_rate: A scalar.
        gradient_scale: A scalar by which the gradient is multiplied. None means 1.
        weight_decay: The fraction of the variable that is subtracted, times the learning rate.
        beta_1: Decay rate of m.
        beta_2: Decay rate of v.
        epsilon: Added to sqrt(v).
        steps: A scalar, the number of this step, starting from 1. It is used to correct the bias
            of m and v: the learning rate is multiplied by
            sqrt(1 - beta_2^steps) / (1 - beta_1^steps). None means no correction.

    Raises:
        UserError: If `variable` is neither float32 nor float64.

    Example:
        >>> variable, m, v = (tf.Variable(tf.zeros([2])) for _ in range(3))
        >>> bert_tf.ops.adam_weight_decay(variable, m, v, tf.ones([2]), learning_rate=0.1)
        >>> variable.numpy().round(3)
        array([-0.316, -0.316], dtype=float32)
    """
    update = AdamUpdate(variable, mean, square, tf.convert_to_tensor(gradient), 1.0, weight_decay)
    adam_weight_decay_all([update], learning_rate, gradient_scale, beta_1, beta_2, epsilon, steps)


class AdamUpdate(NamedTuple):
    """One variable of `adam_weight_decay_all`; see the arguments of `adam_weight_decay`.

    `rate_multiplier` is a factor of the learning rate. `weight_decay` is None for a variable that
    an optimizer excludes from it.
    """

    variable: tf.Variable
    mean: tf.Variable
    square: tf.Variable
    gradient: tf.Tensor
    rate_multiplier: float
    weight_decay: float | None


def adam_weight_decay_all(
    updates: Iterable[AdamUpdate],
    learning_rate: tf.Tensor,
    gradient_scale: tf.Tensor | None,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    steps: tf.Tensor | None,
) -> None:
    """Does what `adam_weight_decay` does for several variables, with one native op per device.

    Raises `UserError` if a variable is neither float32 nor float64.
    """
    library = native.used_library(op="adam_weight_decay")
    native_inputs: dict[str, list[AdamUpdate]] = {}
    for update in updates:
        dtype = update.variable.dtype
        if dtype not in (tf.float32, tf.float64):
            expected = "be float32 or float64, because Adam's second moment needs that precision"
            received = f"variable.dtype={dtype.name}. Update a float32 copy."
            raise user_error("`variable`", expected, received)
        if library is None or dtype != tf.float32:
            _update_in_stock_ops(
                update, learning_rate, gradient_scale, beta_1, beta_2, epsilon, steps
            )
        else:
            inputs = AdamUpdate(
                update.variable.handle,
                update.mean.handle,
                update.square.handle,
                _as_native_type(update.gradient),
                update.rate_multiplier,
                update.weight_decay or 0.0,
            )
            native_inputs.setdefault(update.variable.device, []).append(inputs)
    for inputs in native_inputs.values():
        variables, means, squares, gradients, multipliers, decays = zip(*inputs)
        library.bert_tf_adam_weight_decay(
            variables=variables,
            means=means,
            squares=squares,
            gradients=gradients,
            learning_rates=tf.cast(learning_rate, tf.float32) * tf.constant(multipliers),
            weight_decays=tf.constant(decays),
            gradient_scale=tf.cast(1.0 if gradient_scale is None else gradient_scale, tf.float32),
            steps=tf.cast(0.0 if steps is None else steps, tf.float32),
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
        )


def global_norm(gradients: list[tf.Tensor]) -> tf.Tensor:
    """Returns the square root of the sum of the squares of all elements, a float32 scalar."""
    library = native.used_library(op="global_norm")
    if library is None:
        return tf.linalg.global_norm([tf.cast(gradient, tf.float32) for gradient in gradients])
    return library.bert_tf_global_norm(list(map(_as_native_type, gradients)))


def _as_native_type(gradient: tf.Tensor) -> tf.Tensor:
    """Returns the gradient in a dtype that the native ops read, before a cast to float32.

    Under mixed precision, a graph casts the gradients of float32 variables. The native ops read the
    low-precision tensors, which are half as large, and nothing computes the casts.
    """
    if gradient.dtype not in native.FLOAT_TYPES:
        gradient = tf.cast(gradient, tf.float32)
    source, is_cast = gradient, False
    while not is_cast and tf.is_symbolic_tensor(source):
        if source.op.type not in ("Cast", "Identity", "IdentityN"):
            break
        is_cast = source.op.type == "Cast"
        source = source.op.inputs[source.value_index]
    is_exact = gradient.dtype == tf.float32 and source.dtype in native.FLOAT_TYPES
    return source if is_exact else gradient


def _update_in_stock_ops(update, learning_rate, gradient_scale, beta_1, beta_2, epsilon, steps):
    variable, mean, square, gradient, multiplier, weight_decay = update
    dtype = variable.dtype
    learning_rate = tf.cast(scaled_rate(learning_rate, multiplier), dtype)
    gradient = tf.cast(gradient, dtype)
    if gradient_scale is not None:
        gradient *= tf.cast(gradient_scale, dtype)
    if weight_decay:
        variable.assign_sub(learning_rate * tf.cast(weight_decay, dtype) * variable)
    # With both powers at zero, TensorFlow's kernel computes Adam without bias correction.
    power_1 = power_2 = tf.zeros([], dtype)
    if steps is not None:
        power_1 = tf.cast(beta_1, dtype) ** tf.cast(steps, dtype)
        power_2 = tf.cast(beta_2, dtype) ** tf.cast(steps, dtype)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=mean.handle,
        v=square.handle,
        beta1_power=power_1,
        beta2_power=power_2,
        lr=learning_rate,
        beta1=tf.cast(beta_1, dtype),
        beta2=tf.cast(beta_2, dtype),
        epsilon=tf.cast(epsilon, dtype),
        grad=gradient,
    )


def scaled_rate(learning_rate: tf.Tensor, multiplier: float) -> tf.Tensor:
    """Returns the learning rate of a variable."""
    return learning_rate if multiplier == 1.0 else learning_rate * multiplier


adam_weight_decay_reference = native.reference_of(
    adam_weight_decay, "It runs on any device and under XLA."
)
