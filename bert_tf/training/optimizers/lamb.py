"""LAMB: layer-wise adaptive moments, for large batches."""

import keras
import tensorflow as tf

from bert_tf.training.optimizers.adam_weight_decay import NOT_DECAYED, AdamWeightDecay


@keras.saving.register_keras_serializable(package="bert_tf")
class LAMB(AdamWeightDecay):
    """Adam with updates that have the norm of the variable times the learning rate.

    With m and v the bias-corrected running means of the gradient g and of g²:

        update = m / (sqrt(v) + epsilon) + weight_decay_rate * variable
        variable -= learning_rate * |variable| / |update| * update

    The ratio of the norms is 1 if one of them is zero, and for variables without weight decay.

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: The weight decay; 0.01 in the paper.
        beta_1, beta_2: The decay rates of m and of v.
        epsilon: Added to sqrt(v).
        clip_norm: The largest global norm of the gradients, summed over all replicas. None does
            not clip.
        bias_correction: Whether to correct the bias of m and v in the first steps.
        exclude_from_weight_decay_names: The last parts of the paths of variables that have neither
            weight decay nor an adapted norm.
        layer_decay, dynamic_loss_scale: See `AdamWeightDecay`.
        name: The name of the optimizer.
        learning_rate_multipliers: See `AdamWeightDecay`.
        **kwargs: Other arguments of `keras.optimizers.Optimizer`.

    Raises:
        UserError: If `layer_decay` is not in (0, 1].

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> schedule = bert_tf.training.WarmupLinearDecay(1.76e-3, 15625, num_warmup_steps=3125)
        >>> model.compile(optimizer=bert_tf.training.LAMB(schedule))

    Reference: You et al. 2020 (arXiv 1904.00962), algorithm 2.
    """

    slot_names = ("lamb_m", "lamb_v")

    def __init__(
        self,
        learning_rate=1e-3,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = True,
        exclude_from_weight_decay_names: tuple[str, ...] = NOT_DECAYED,
        layer_decay: float | None = None,
        dynamic_loss_scale: bool = False,
        name: str = "lamb",
        learning_rate_multipliers: dict[str, float] | None = None,
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            weight_decay_rate,
            beta_1,
            beta_2,
            epsilon,
            clip_norm,
            bias_correction,
            exclude_from_weight_decay_names,
            layer_decay,
            dynamic_loss_scale,
            name,
            learning_rate_multipliers,
            **kwargs,
        )

    def update_weights(self, updates, gradient_scale):
        for update in updates:
            self._update_weight(*update, gradient_scale)

    def _update_weight(
        self, variable, mean, square, gradient, learning_rate, weight_decay, gradient_scale
    ):
        dtype = variable.dtype
        if gradient_scale is not None:
            gradient *= tf.cast(gradient_scale, dtype)
        m = mean.assign_add((1.0 - self.beta_1) * (gradient - mean))
        v = square.assign_add((1.0 - self.beta_2) * (tf.square(gradient) - square))
        m, v = tf.convert_to_tensor(m), tf.convert_to_tensor(v)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, tf.float32)
            m /= tf.cast(1.0 - self.beta_1**step, dtype)
            v /= tf.cast(1.0 - self.beta_2**step, dtype)
        update = m / (tf.sqrt(v) + self.epsilon)
        if weight_decay is not None:
            update += weight_decay * variable
            norm, update_norm = tf.norm(variable), tf.norm(update)
            both = (norm > 0) & (update_norm > 0)
            ratio = tf.where(both, tf.math.divide_no_nan(norm, update_norm), 1.0)
            learning_rate = learning_rate * tf.cast(ratio, learning_rate.dtype)
        variable.assign_sub(tf.cast(learning_rate, dtype) * update)
