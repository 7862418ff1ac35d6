"""The optimizer that BERT was trained with."""

import keras

from bert_tf.ops.adam_weight_decay import AdamUpdate, adam_weight_decay_all
from bert_tf.training.optimizers.clipped_optimizer import ClippedOptimizer


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamWeightDecay(ClippedOptimizer):
    """Adam with decoupled weight decay and clipping by the global norm, as in the original.

    With m and v the running means of the gradient g and of g²:

        variable -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * variable)

    Slots are float32 for weights in bfloat16 and float16 too. Such a weight also has a float32
    copy, to which updates are applied, and is the rounded copy: updates below half a unit in the
    last place of the weight would otherwise be lost. A value assigned to the weight is copied
    before the next update.

    Args:
        learning_rate: A float or a schedule.
        weight_decay_rate: The decoupled weight decay; 0.01 in the original.
        beta_1, beta_2: The decay rates of m and of v.
        epsilon: Added to sqrt(v); 1e-6 in the original.
        clip_norm: The largest global norm of the gradients, summed over all replicas. None does
            not clip.
        bias_correction: Whether to correct the bias of m and v in the first steps. The original
            does not; the correction helps on small data sets (arXiv 2006.05987).
        exclude_from_weight_decay_names: The last parts of the paths of variables without decay.
        layer_decay: The learning rate of a block is that of the block above it times this factor.
            The embeddings count as a block below the first, heads and pooler as one above the
            last. None means the same rate for all.
        dynamic_loss_scale: Whether to scale the loss, which float16 needs. A step with infinite
            gradients is skipped and halves the scale; 2,000 good steps in a row double it.
            `compile` turns this on for models with the policy `mixed_float16`.
        name: The name of the optimizer.
        learning_rate_multipliers: Factors of the learning rate by a part of a variable's path, such
            as {"crf": 100.0} for the layer with that name.
        **kwargs: Other arguments of `keras.optimizers.Optimizer`.

    Raises:
        UserError: If `layer_decay` is not in (0, 1].

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> schedule = bert_tf.training.WarmupLinearDecay(5e-5, 1000, num_warmup_steps=100)
        >>> model.compile(optimizer=bert_tf.training.AdamWeightDecay(schedule))

    Reference: google-research/bert optimization.py, `AdamWeightDecayOptimizer`.
    """

    slot_names = ("adam_m", "adam_v")

    def update_weights(self, updates, gradient_scale):
        steps = self.iterations + 1 if self.bias_correction else None
        adam_weight_decay_all(
            [
                AdamUpdate(
                    variable,
                    self._means[index].value,
                    self._squares[index].value,
                    gradient,
                    learning_rate,
                    self.weight_decay_rate if self._is_decayed[index] else 0.0,
                )
                for index, variable, gradient, learning_rate in updates
            ],
            gradient_scale,
            self.beta_1,
            self.beta_2,
            self.epsilon,
            steps,
        )
