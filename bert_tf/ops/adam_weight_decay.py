"""One step of Adam with decoupled weight decay on one variable, in one pass over memory.

    g = gradient_scale * gradient
    m = m + (1 - beta_1) * (g - m)
    v = v + (1 - beta_2) * (g² - v)
    variable = variable - learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * variable)

google-research/bert optimization.py; Loshchilov and Hutter, arXiv 1711.05101. The native kernel is
`custom_ops/kernels/adam_weight_decay.h`.
"""

from __future__ import annotations

import tensorflow as tf

from bert_tf.errors import UserError
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

    The native op takes float32 variables on a CPU; others go to the reference implementation. In
    bfloat16 and float16 epsilon and v would round to zero, so these are refused: the optimizers
    keep a float32 copy.

    Args:
        variable: any shape, float32 or float64.
        mean: m, of the same shape and dtype.
        square: v, likewise.
        gradient: likewise.
        learning_rate: scalar.
        gradient_scale: scalar that the gradient is multiplied with; None for 1.
        weight_decay: the share of the variable that is taken off, times the learning rate.
        beta_1: decay of m.
        beta_2: decay of v.
        epsilon: added to sqrt(v).
        steps: scalar, the number of this step from 1 on, to correct the bias of m and v: the
            learning rate is multiplied by sqrt(1 - beta_2^steps) / (1 - beta_1^steps); None does
            not correct.

    Raises:
        UserError: If the variable is of another dtype.

    Example:
        >>> variable, m, v = (tf.Variable(tf.zeros([2])) for _ in range(3))
        >>> bert_tf.ops.adam_weight_decay(variable, m, v, tf.ones([2]), learning_rate=0.1)
        >>> variable.numpy().round(3)
        array([-0.316, -0.316], dtype=float32)
    """
    if variable.dtype not in (tf.float32, tf.float64):
        raise UserError(
            "`variable` must be float32 or float64: in fewer bits Adam's second moment is lost. "
            f"Received: variable.dtype={variable.dtype.name}. Update a float32 copy of it."
        )
    arguments = (variable, mean, square, gradient, learning_rate, gradient_scale, weight_decay)
    if not native.use_native(runs_on_gpu=False) or variable.dtype != tf.float32:
        adam_weight_decay_reference(*arguments, beta_1, beta_2, epsilon, steps)
        return
    native.library().bert_tf_adam_weight_decay(
        variable.handle,
        mean.handle,
        square.handle,
        gradient,
        tf.cast(learning_rate, tf.float32),
        tf.constant(1.0) if gradient_scale is None else tf.cast(gradient_scale, tf.float32),
        tf.constant(weight_decay, tf.float32),
        tf.constant(0.0) if steps is None else tf.cast(steps, tf.float32),
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
    )


def adam_weight_decay_reference(
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
    """`adam_weight_decay` in stock TensorFlow ops: on any device, under XLA.

    Example:
        >>> variable, m, v = (tf.Variable(tf.zeros([2])) for _ in range(3))
        >>> gradient, rate = tf.ones([2]), tf.constant(0.1)
        >>> bert_tf.ops.adam_weight_decay_reference(variable, m, v, gradient, rate)
        >>> variable.numpy().round(3)
        array([-0.316, -0.316], dtype=float32)
    """
    dtype = variable.dtype
    learning_rate = tf.cast(learning_rate, dtype)
    if gradient_scale is not None:
        gradient *= tf.cast(gradient_scale, dtype)
    if weight_decay:
        variable.assign_sub(learning_rate * tf.cast(weight_decay, dtype) * variable)
    # With both powers at zero TensorFlow's kernel is Adam without bias correction.
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
