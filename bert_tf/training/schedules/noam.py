"""The learning rate schedule of the original Transformer."""

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.schedules.run_schedule import RunSchedule


@keras.saving.register_keras_serializable(package="bert_tf")
class Noam(RunSchedule):
    """Linear warm-up, then decay with the inverse square root of the step.

        factor * hidden_size ** -0.5 * min(step ** -0.5, step * num_warmup_steps ** -1.5)

    The first step has the number 1.

    Args:
        hidden_size: The hidden size of the model.
        num_warmup_steps: The number of warm-up steps, at the end of which the rate is largest.
        factor: The factor of all rates.

    Raises:
        UserError: If `hidden_size` or `num_warmup_steps` is less than 1.

    Example:
        >>> schedule = bert_tf.training.Noam(hidden_size=256, num_warmup_steps=100)
        >>> [round(float(schedule(step)) * 1e6) for step in (1, 49, 99, 399)]
        [125, 3125, 6250, 3125]

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 5.3.
    """

    has_end = False

    def __init__(self, hidden_size: int, num_warmup_steps: int = 4000, factor: float = 1.0):
        super().__init__(num_warmup_steps=num_warmup_steps)
        if num_warmup_steps < 1 or hidden_size < 1:
            raise UserError(
                "`hidden_size` and `num_warmup_steps` must be at least 1. Received: "
                f"hidden_size={hidden_size}, num_warmup_steps={num_warmup_steps}"
            )
        self.hidden_size = hidden_size
        self.factor = factor

    def rate(self, step, num_steps, num_warmup_steps):
        slope = tf.minimum(tf.math.rsqrt(step + 1.0), (step + 1.0) * self.num_warmup_steps**-1.5)
        return self.factor * self.hidden_size**-0.5 * slope
