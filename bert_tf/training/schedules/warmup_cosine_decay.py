"""Linear warm-up, then cosine decay."""

import math

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.schedules.run_schedule import RunSchedule, with_warmup


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupCosineDecay(RunSchedule):
    """Linear warm-up, then half a cosine from the peak to the final rate.

    Args:
        learning_rate: The largest rate.
        num_train_steps: The number of optimizer steps of the whole run; None as in
            `WarmupLinearDecay`.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.
        final_rate: The rate at the end of the run.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.

    Raises:
        UserError: See `WarmupLinearDecay`, or if all steps are warm-up.

    Example:
        >>> schedule = bert_tf.training.WarmupCosineDecay(1e-4, 110, num_warmup_steps=10)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 5, 10, 60, 110)]
        [0, 50, 100, 50, 0]

    Reference: Loshchilov and Hutter 2017 (arXiv 1608.03983), without restarts.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        final_rate: float = 0.0,
        warmup: float | None = None,
    ):
        super().__init__(num_train_steps, num_warmup_steps, warmup)
        self.learning_rate = learning_rate
        self.final_rate = final_rate

    def check_run(self, num_steps, num_warmup_steps):
        if not 0 <= num_warmup_steps < num_steps:
            raise UserError(
                "`num_warmup_steps` must be in [0, num_train_steps). Received: "
                f"{num_warmup_steps=}, num_train_steps={num_steps}"
            )

    def rate(self, step, num_steps, num_warmup_steps):
        done = (step - num_warmup_steps) / (num_steps - num_warmup_steps)
        height = 0.5 * (1.0 + tf.cos(math.pi * tf.clip_by_value(done, 0.0, 1.0)))
        rate = self.final_rate + (self.learning_rate - self.final_rate) * height
        return with_warmup(rate, self.learning_rate, step, num_warmup_steps)
