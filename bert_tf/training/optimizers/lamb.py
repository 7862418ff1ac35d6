"""LAMB: layer-wise adaptive moments, for large batches."""

import keras
import tensorflow as tf

from bert_tf.training.optimizers.clipped_optimizer import NOT_DECAYED, ClippedOptimizer


@keras.saving.register_keras_serializable(package="bert_tf")
class LAMB(ClippedOptimizer):
    """Adam whose step in each variable has the length of the variable, times the learning rate.

    With m and v the bias-corrected running means of the gradient g and of g²:

        update = m / (sqrt(v) + epsilon) + weight_decay_rate * variable
        variable -= learning_rate * |variable| / |update| * update

    The ratio is 1 where one of the two norms is zero, and for the variables that are not decayed.

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: 0.01 in the paper.
        beta_1: Decay of m.
        beta_2: Decay of v.
        epsilon: Added to sqrt(v).
        clip_norm: Largest global norm of the gradients, over all replicas; None does not clip.
        bias_correction: Whether m and v are divided by what they lack in the first steps.
        exclude_from_weight_decay_names: Leaf names of the variables that are neither decayed nor
            have their step adapted.
        layer_decay: Factor of the learning rate from a block to the one below; None for none.
        dynamic_loss_scale: Whether to scale the loss for float16; see `ClippedOptimizer`.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> schedule = bert_tf.training.WarmupLinearDecay(1.76e-3, 15625, num_warmup_steps=3125)
        >>> model.compile(optimizer=bert_tf.training.LAMB(schedule))

    Reference: You et al. 2020 (arXiv 1904.00962), algorithm 2.
    """

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
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            weight_decay_rate,
            clip_norm,
            exclude_from_weight_decay_names,
            layer_decay,
            dynamic_loss_scale,
            name,
            **kwargs,
        )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._means, self._squares = self.add_optimizer_variables(variables, ["lamb_m", "lamb_v"])

    def update_step(self, gradient, variable, learning_rate, gradient_scale=None):
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        if gradient_scale is not None:
            gradient *= tf.cast(gradient_scale, dtype)
        mean, square = self._means[index].value, self._squares[index].value
        m = mean.assign_add((1.0 - self.beta_1) * (gradient - mean))
        v = square.assign_add((1.0 - self.beta_2) * (tf.square(gradient) - square))
        m, v = tf.convert_to_tensor(m), tf.convert_to_tensor(v)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, tf.float32)
            m /= tf.cast(1.0 - self.beta_1**step, dtype)
            v /= tf.cast(1.0 - self.beta_2**step, dtype)
        update = m / (tf.sqrt(v) + self.epsilon)
        if self.is_decayed(variable):
            update += self.weight_decay_rate * variable
            length, update_length = tf.norm(variable), tf.norm(update)
            known = (length > 0) & (update_length > 0)
            ratio = tf.where(known, tf.math.divide_no_nan(length, update_length), 1.0)
            learning_rate = learning_rate * tf.cast(ratio, learning_rate.dtype)
        variable.assign_sub(tf.cast(learning_rate, dtype) * update)

    def get_config(self):
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "bias_correction": self.bias_correction,
        }
