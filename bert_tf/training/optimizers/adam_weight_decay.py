"""The optimizer BERT was trained with."""

import keras

from bert_tf import ops
from bert_tf.training.optimizers.clipped_optimizer import NOT_DECAYED, ClippedOptimizer


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(ClippedOptimizer):
    """Adam with decoupled weight decay and a clip by the global norm, as in the original.

    With m and v the running means of the gradient g and of g²:

        variable -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * variable)

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: 0.01 in the original.
        beta_1: Decay of m.
        beta_2: Decay of v.
        epsilon: 1e-6 in the original, added to sqrt(v).
        clip_norm: Largest global norm of the gradients, over all replicas; None does not clip.
        bias_correction: Whether to divide m and v by what they lack in the first steps. The
            original does not; it helps on small data sets (arXiv 2006.05987).
        exclude_from_weight_decay_names: Leaf names of variables that are not decayed.
        layer_decay: Factor of the learning rate from a block to the one below; None for none.
        dynamic_loss_scale: Whether to scale the loss for float16; see `ClippedOptimizer`.
        **kwargs: `learning_rate_multipliers`; see `ClippedOptimizer`.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> schedule = bert_tf.training.WarmupLinearDecay(5e-5, 1000, num_warmup_steps=100)
        >>> model.compile(optimizer=bert_tf.training.AdamWeightDecay(schedule))

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
        layer_decay: float | None = None,
        dynamic_loss_scale: bool = False,
        name: str = "adam_weight_decay",
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
        self._means, self._squares = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])

    def update_step(self, gradient, variable, learning_rate, gradient_scale=None):
        index = self._get_variable_index(variable)
        ops.adam_weight_decay(
            variable,
            self._means[index].value,
            self._squares[index].value,
            gradient,
            learning_rate,
            gradient_scale,
            self.weight_decay_rate if self.is_decayed(variable) else 0.0,
            self.beta_1,
            self.beta_2,
            self.epsilon,
            steps=self.iterations + 1 if self.bias_correction else None,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "bias_correction": self.bias_correction,
        }
