"""Schedules with a warm-up beyond those of `schedules.py`, of which each is the shape of its rates.

The numbers are those of the `get_…_schedule` functions of transformers.
"""

import math

import keras
import tensorflow as tf

from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.training.schedules import DecaySchedule, RunSchedule

DECAYS = {  # from 1 at the beginning of the decay, 0, to 0 at its end, 1
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + tf.cos(math.pi * done)),
    "1-sqrt": lambda done: 1.0 - tf.sqrt(done),
}


class _Endless(RunSchedule):
    """A schedule whose rates do not depend on the number of steps of the run."""

    has_end = False

    def __init__(self, learning_rate: float, num_warmup_steps: int):
        rule = "must be at least 0"
        require(num_warmup_steps >= 0, rule, UserError, num_warmup_steps=num_warmup_steps)
        super().__init__(num_warmup_steps=num_warmup_steps)
        self.learning_rate = learning_rate


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupConstant(_Endless):
    """Linear warm-up, then always the same rate.

    Args:
        learning_rate: The rate after the warm-up.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.

    Raises:
        UserError: If `num_warmup_steps` is negative.

    Example:
        >>> schedule = bert_tf.training.WarmupConstant(1e-4, num_warmup_steps=10)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 5, 10, 1000)]
        [0, 50, 100, 100]

    Reference: `get_constant_schedule_with_warmup` of transformers.
    """

    def __init__(self, learning_rate: float, num_warmup_steps: int = 0):
        super().__init__(learning_rate, num_warmup_steps)

    def rate(self, step, num_steps, num_warmup_steps):
        return self.learning_rate


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupInverseSqrt(_Endless):
    """Linear warm-up to a peak, then decay with the inverse square root of the step.

    After the warm-up the rate is `learning_rate / sqrt((step - num_warmup_steps) / timescale + 1)`.

    Args:
        learning_rate: The rate at the end of the warm-up.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.
        timescale: The number of steps after the warm-up in which the rate falls by a factor of the
            square root of 2; None for `num_warmup_steps`, or 10,000 without a warm-up.

    Raises:
        UserError: If `num_warmup_steps` is negative or `timescale` is below 1.

    Example:
        >>> schedule = bert_tf.training.WarmupInverseSqrt(1e-4, num_warmup_steps=100)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 50, 100, 400, 10000)]
        [0, 50, 100, 50, 10]

    Reference: `get_inverse_sqrt_schedule` of transformers; Raffel et al. 2020 (T5).
    """

    def __init__(
        self, learning_rate: float, num_warmup_steps: int = 0, timescale: int | None = None
    ):
        rule = "must be at least 1"
        require(timescale is None or timescale >= 1, rule, UserError, timescale=timescale)
        super().__init__(learning_rate, num_warmup_steps)
        self.timescale = timescale

    def rate(self, step, num_steps, num_warmup_steps):
        timescale = self.timescale or self.num_warmup_steps or 10_000  # as transformers
        after = tf.maximum(step - num_warmup_steps, 0.0)
        return self.learning_rate * tf.math.rsqrt(after / timescale + 1.0)


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupPolynomialDecay(DecaySchedule):
    """Linear warm-up, then decay with a power of the share of the steps that are left.

    Args:
        learning_rate: The largest rate.
        num_train_steps: The number of optimizer steps of the whole run; None as in
            `WarmupLinearDecay`.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.
        power: The power, above 0; 1 is linear, 2 falls fast at first.
        final_rate: The rate at the end of the run.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.

    Raises:
        UserError: See `WarmupLinearDecay`, or if `power` is not above 0.

    Example:
        >>> schedule = bert_tf.training.WarmupPolynomialDecay(1e-4, 110, 10, power=2.0)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 5, 10, 60, 110)]
        [0, 50, 100, 25, 0]

    Reference: `get_polynomial_decay_schedule_with_warmup` of transformers.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        power: float = 1.0,
        final_rate: float = 0.0,
        warmup: float | None = None,
    ):
        require(power > 0, "must be above 0", UserError, power=power)
        super().__init__(learning_rate, num_train_steps, num_warmup_steps, final_rate, warmup)
        self.power = power

    def height(self, step, num_steps, num_warmup_steps):
        step, length = _after_warmup(step, num_steps, num_warmup_steps)
        return (1.0 - step / length) ** self.power


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupCosineRestarts(DecaySchedule):
    """Linear warm-up, then a number of half cosines, each of which begins at the largest rate.

    Args:
        learning_rate: The largest rate.
        num_train_steps: The number of optimizer steps of the whole run; None as in
            `WarmupLinearDecay`.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.
        num_cycles: The number of half cosines, at least 1.
        final_rate: The rate at the end of each half cosine.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.

    Raises:
        UserError: See `WarmupLinearDecay`, or if `num_cycles` is not a whole number of at least 1.

    Example:
        >>> schedule = bert_tf.training.WarmupCosineRestarts(1e-4, 110, 10, num_cycles=2)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 10, 35, 59, 60, 110)]
        [0, 100, 50, 0, 100, 0]

    Reference: Loshchilov and Hutter 2017 (arXiv 1608.03983), cycles of equal length;
        `get_cosine_with_hard_restarts_schedule_with_warmup` of transformers.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        num_cycles: int = 1,
        final_rate: float = 0.0,
        warmup: float | None = None,
    ):
        is_valid = num_cycles >= 1 and num_cycles == int(num_cycles)
        require(is_valid, "must be a whole number of at least 1", UserError, num_cycles=num_cycles)
        super().__init__(learning_rate, num_train_steps, num_warmup_steps, final_rate, warmup)
        self.num_cycles = num_cycles

    def height(self, step, num_steps, num_warmup_steps):
        step, length = _after_warmup(step, num_steps, num_warmup_steps)
        # The remainder of whole numbers is exact, so a cycle begins at its step.
        done = tf.math.floormod(step * self.num_cycles, length) / length
        return tf.where(step < length, DECAYS["cosine"](done), 0.0)


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupStableDecay(DecaySchedule):
    """Linear warm-up, a constant rate, and a decay at the end of the run (WSD).

    Args:
        learning_rate: The rate between warm-up and decay.
        num_train_steps: The number of optimizer steps of the whole run; None as in
            `WarmupLinearDecay`.
        num_warmup_steps: The number of warm-up steps; 0 for no warm-up.
        num_decay_steps: The number of steps of the decay.
        decay_type: "cosine", "linear" or "1-sqrt" (Hägele et al. 2024).
        final_rate: The rate at the end of the run.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.
        decay: In place of `num_decay_steps`, the share of the run that is decay. Without both: 0.1.

    Raises:
        UserError: See `WarmupLinearDecay`; if `num_decay_steps` is negative, `decay` is not in
            [0, 1] or both are given; if warm-up and decay have more steps than the run, or
            `decay_type` is unknown.

    Example:
        >>> schedule = bert_tf.training.WarmupStableDecay(1e-4, 100, 10, num_decay_steps=20)
        >>> [round(float(schedule(step)) * 1e6) for step in (0, 5, 10, 80, 90, 100)]
        [0, 50, 100, 100, 50, 0]

    Reference: Hu et al. 2024 (arXiv 2404.06395); `get_wsd_schedule` of transformers, whose warm-up
        begins at the final rate.
    """

    def __init__(
        self,
        learning_rate: float,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        num_decay_steps: int | None = None,
        decay_type: str = "cosine",
        final_rate: float = 0.0,
        warmup: float | None = None,
        decay: float | None = None,
    ):
        require_one_of("decay_type", decay_type, tuple(DECAYS))
        if num_decay_steps is not None and decay is not None:
            received = f"num_decay_steps={num_decay_steps}, decay={decay}"
            raise user_error("At most one of `num_decay_steps` and `decay`", "be given", received)
        rule = "must be at least 0"
        is_valid = num_decay_steps is None or num_decay_steps >= 0
        require(is_valid, rule, UserError, num_decay_steps=num_decay_steps)
        rule = "must be in [0, 1], a share of the run"
        require(decay is None or 0.0 <= decay <= 1.0, rule, UserError, decay=decay)
        self.num_decay_steps = num_decay_steps
        self.decay_type = decay_type
        self.decay = decay
        super().__init__(learning_rate, num_train_steps, num_warmup_steps, final_rate, warmup)

    def check_run(self, num_steps, num_warmup_steps):
        super().check_run(num_steps, num_warmup_steps)
        decaying = self._decay_steps(num_steps)
        if num_warmup_steps + decaying > num_steps:
            expected = "be at most the steps after the warm-up"
            received = f"{decaying:g} steps, {num_warmup_steps=}, num_train_steps={num_steps}"
            raise user_error("`num_decay_steps`, or `decay` of the run,", expected, received)

    def _decay_steps(self, num_steps):
        if self.num_decay_steps is not None:
            return self.num_decay_steps
        return num_steps * (0.1 if self.decay is None else self.decay)

    def height(self, step, num_steps, num_warmup_steps):
        decaying = tf.cast(self._decay_steps(num_steps), tf.float32)
        left = tf.clip_by_value(num_steps - step, 0.0, decaying)
        done = 1.0 - left / tf.maximum(decaying, 1.0)
        height = tf.where(step >= num_steps, 0.0, DECAYS[self.decay_type](done))
        return tf.where(step < num_steps - decaying, 1.0, height)


def _after_warmup(step, num_steps, num_warmup_steps):
    """Returns the number of steps since the warm-up, in [0, length], and the length of the rest."""
    length = tf.maximum(num_steps - num_warmup_steps, 1.0)
    return tf.clip_by_value(step - num_warmup_steps, 0.0, length), length
