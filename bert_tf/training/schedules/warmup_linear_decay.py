"""Linear warm-up, then linear decay."""

import keras
import tensorflow as tf

from bert_tf.errors import UserError


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then linear decay to zero.

    Matches google-research/bert: the decay counts from step 0, so the rate drops a little at the
    end of the warm-up.

    Args:
        learning_rate: The rate from which it decays.
        num_train_steps: The number of optimizer steps of the whole run.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.

    Raises:
        UserError: If `num_warmup_steps` is not in [0, num_train_steps] or `num_train_steps` is 0.

    Example:
        >>> schedule = bert_tf.training.WarmupLinearDecay(1e-4, 100, num_warmup_steps=10)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 5, 10, 55, 100)]
        [0, 50, 90, 45, 0]

    Reference: google-research/bert optimization.py, `create_optimizer`.
    """

    def __init__(self, learning_rate: float, num_train_steps: int, num_warmup_steps: int = 0):
        if not 0 <= num_warmup_steps <= num_train_steps or num_train_steps < 1:
            raise UserError(
                "`num_warmup_steps` must be in [0, num_train_steps]. Received: "
                f"num_warmup_steps={num_warmup_steps}, num_train_steps={num_train_steps}"
            )
        self.learning_rate = learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        done = tf.minimum(step / float(self.num_train_steps), 1.0)
        rate = self.learning_rate * (1.0 - done)
        if not self.num_warmup_steps:
            return rate
        warmup = self.learning_rate * step / float(self.num_warmup_steps)
        return tf.where(step < float(self.num_warmup_steps), warmup, rate)

    def get_config(self):
        names = ("learning_rate", "num_train_steps", "num_warmup_steps")
        return {name: getattr(self, name) for name in names}
