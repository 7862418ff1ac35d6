"""Linear warm-up, then linear decay."""

import keras
import tensorflow as tf

from bert_tf.training.schedules.run_schedule import RunSchedule, with_warmup


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(RunSchedule):
    """Linear warm-up, then linear decay to zero.

    Matches google-research/bert: the decay counts from step 0, so the rate drops a little at the
    end of the warm-up.

    Args:
        learning_rate: The rate from which it decays.
        num_train_steps: The number of optimizer steps of the whole run. None: `fit` of this
            package's models finds it, `epochs` times the batches of an epoch; each `fit` is a run
            of its own, unless `initial_epoch` says that it continues one.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.
        decay_after_warmup: Whether the decay counts from the end of the warm-up, as in
            `create_optimizer` of transformers, so that `learning_rate` is reached.

    Raises:
        UserError: If `num_warmup_steps` is not in [0, num_train_steps] or `num_train_steps` is 0;
            if `warmup` is not in [0, 1] or is given with `num_warmup_steps`; if the rate is
            computed without `num_train_steps` and before `fit`.

    Example:
        >>> schedule = bert_tf.training.WarmupLinearDecay(1e-4, 100, num_warmup_steps=10)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 5, 10, 55, 100)]
        [0, 50, 90, 45, 0]
        >>> optimizer = bert_tf.training.AdamWeightDecay(
        ...     bert_tf.training.WarmupLinearDecay(5e-5, warmup=0.1)
        ... )

    Reference: google-research/bert optimization.py, `create_optimizer`.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        warmup: float | None = None,
        decay_after_warmup: bool = False,
    ):
        super().__init__(num_train_steps, num_warmup_steps, warmup)
        self.learning_rate = learning_rate
        self.decay_after_warmup = decay_after_warmup

    def rate(self, step, num_steps, num_warmup_steps):
        before = num_warmup_steps if self.decay_after_warmup else 0.0
        done = tf.minimum((step - before) / tf.maximum(num_steps - before, 1.0), 1.0)
        return with_warmup(
            self.learning_rate * (1.0 - done), self.learning_rate, step, num_warmup_steps
        )
