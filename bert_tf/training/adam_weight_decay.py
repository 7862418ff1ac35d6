"""The optimizer BERT was trained with."""

import keras
import tensorflow as tf

# Leaf names of the variables that are not decayed: LayerNorm's and every bias.
NOT_DECAYED = ("gamma", "beta", "bias")


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and a clip by the global norm, as in the original.

    With m and v the running means of the gradient g and of g²:

        variable -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * variable)

    The gradients of all variables are first scaled so that their joint norm is at most
    `clip_norm`. Under a `tf.distribute` strategy that happens after the sum over the replicas
    (Keras's own `global_clipnorm` clips on each replica before it).

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: 0.01 in the original.
        beta_1: Decay of m.
        beta_2: Decay of v.
        epsilon: 1e-6 in the original, added to sqrt(v).
        clip_norm: Largest global norm of the gradients; None does not clip.
        bias_correction: Whether to divide m and v by what they lack in the first steps. The
            original does not; it helps on small data sets (arXiv 2006.05987).
        exclude_from_weight_decay_names: Leaf names of variables that are not decayed.

    Example:
        >>> schedule = WarmupLinearDecay(5e-5, num_train_steps=1000, num_warmup_steps=100)
        >>> model.compile(optimizer=AdamWeightDecay(schedule))

    Reference: google-research/bert optimization.py, `AdamWeightDecayOptimizer`.
    """

    def __init__(
        self,
        learning_rate=5e-5,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        clip_norm: float | None = 1.0,
        bias_correction: bool = False,
        exclude_from_weight_decay_names: tuple[str, ...] = NOT_DECAYED,
        name: str = "adam_weight_decay",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.clip_norm = clip_norm
        self.bias_correction = bias_correction
        self.exclude_from_weight_decay_names = tuple(exclude_from_weight_decay_names)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._means, self._squares = self.add_optimizer_variables(
            variables, ["adam_m", "adam_v"]
        )

    def _all_reduce_sum_gradients(self, grads_and_vars):
        # Keras calls this between the gradients of one replica and the update: the one place where
        # the gradients of the whole batch are there together.
        dense = [
            (None if grad is None else tf.convert_to_tensor(grad), variable)
            for grad, variable in grads_and_vars
        ]
        reduced = super()._all_reduce_sum_gradients(dense)
        if self.clip_norm is None:
            return reduced
        grads, variables = zip(*reduced)
        clipped, _ = tf.clip_by_global_norm(grads, self.clip_norm)
        return list(zip(clipped, variables))

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        learning_rate = tf.cast(learning_rate, variable.dtype)
        if self.weight_decay_rate and self._is_decayed(variable):
            decay = learning_rate * tf.cast(self.weight_decay_rate, variable.dtype)
            variable.assign_sub(decay * variable)
        # With both powers at zero TensorFlow's kernel is Adam without bias correction:
        # variable -= learning_rate * m / (sqrt(v) + epsilon), one pass over memory.
        power_1 = power_2 = tf.zeros([], variable.dtype)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, variable.dtype)
            power_1 = tf.cast(self.beta_1, variable.dtype) ** step
            power_2 = tf.cast(self.beta_2, variable.dtype) ** step
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._means[index].value.handle,
            v=self._squares[index].value.handle,
            beta1_power=power_1,
            beta2_power=power_2,
            lr=learning_rate,
            beta1=tf.cast(self.beta_1, variable.dtype),
            beta2=tf.cast(self.beta_2, variable.dtype),
            epsilon=tf.cast(self.epsilon, variable.dtype),
            grad=tf.cast(gradient, variable.dtype),
        )

    def _is_decayed(self, variable) -> bool:
        leaf = variable.name.split("/")[-1].split(":")[0]
        return leaf not in self.exclude_from_weight_decay_names

    def get_config(self):
        config = super().get_config()
        # Fixed by this class, not arguments of it.
        for name in ("weight_decay", "clipnorm", "global_clipnorm", "clipvalue"):
            config.pop(name, None)
        return {
            **config,
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "clip_norm": self.clip_norm,
            "bias_correction": self.bias_correction,
            "exclude_from_weight_decay_names": self.exclude_from_weight_decay_names,
        }
