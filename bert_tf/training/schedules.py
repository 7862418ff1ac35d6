"""Schedules of the learning rate: which step of a run each step of `fit` is, and its rate."""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.batches import DEFAULT_BATCH_SIZE


class RunSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over the steps of a run, which may begin before or after the optimizer's step 0.

    `fit` sets the run, and counts its steps if they are not given. The numbers of the run are in a
    variable, so a traced step has the rates of every later run. A subclass defines `rate`, and
    `learning_rate` for a linear warm-up.

    Args:
        num_train_steps: The number of optimizer steps of the whole run; None: `fit` finds it.
        num_warmup_steps: The number of warm-up steps.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.

    Attributes:
        has_end: Whether the rates depend on the number of steps of the run.
        learning_rate: The rate at the end of the linear warm-up; None for a `rate` with its own.
        needs_run: Whether `fit` must say how long a run is. If not, an optimizer that has taken a
            step knows where its run is.

    Raises:
        UserError: If `warmup` is not in [0, 1], or is given with `num_warmup_steps`.
    """

    has_end = True
    learning_rate: float | None = None

    def __init__(
        self,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        warmup: float | None = None,
    ):
        if warmup is not None and num_warmup_steps:
            received = f"num_warmup_steps={num_warmup_steps}, warmup={warmup}"
            raise user_error("At most one of `num_warmup_steps` and `warmup`", "be given", received)
        rule = "must be in [0, 1], a share of the run"
        require(warmup is None or 0.0 <= warmup <= 1.0, rule, UserError, warmup=warmup)
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.warmup = warmup
        self.needs_run = self.has_end and num_train_steps is None
        self._first_step, self._num_steps = 0, num_train_steps if self.has_end else 0
        self._is_held = self._is_resumed = False
        self._numbers = None
        if num_train_steps is not None:
            self.check_run(*self.run()[1:])

    def rate(self, step: tf.Tensor, num_steps: tf.Tensor, num_warmup_steps: tf.Tensor) -> tf.Tensor:
        """Returns the rate of a step of the run after its warm-up; all are scalars float32."""
        raise NotImplementedError(f"{type(self).__name__} must have `rate`.")

    def check_run(self, num_steps: int, num_warmup_steps: int) -> None:
        """Raises `UserError` if a run of this length does not fit the warm-up."""
        if not 0 <= num_warmup_steps <= num_steps or num_steps < 1:
            received = f"num_warmup_steps={num_warmup_steps!r}, num_train_steps={num_steps}"
            raise user_error("`num_warmup_steps`", "be in [0, num_train_steps]", received)

    def __call__(self, step):
        first_step, num_steps, num_warmup_steps = tf.unstack(self.numbers())
        step = tf.cast(step, tf.float32) - first_step
        rate = self.rate(step, num_steps, num_warmup_steps)
        if self.learning_rate is None:
            return rate
        rising = self.learning_rate * step / tf.maximum(num_warmup_steps, 1.0)
        return tf.where(step < num_warmup_steps, rising, rate)

    def numbers(self) -> tf.Variable:
        """Returns the variable with the numbers of `run`, float32 `[3]`, for graphs."""
        if self._numbers is None:
            run = self.run()
            with tf.init_scope():
                self._numbers = tf.Variable(run, trainable=False, dtype=tf.float32, name="run")
        return self._numbers

    def run(self) -> tuple[int, int, int]:
        """Returns the run's first step, its number of steps, and how many of them are warm-up.

        The number of steps is 0 for a schedule without an end. Raises `UserError` if `fit` has not
        found the number of steps.
        """
        rule = "must be given outside of `fit`, which finds it"
        fix = f"Pass `{type(self).__name__}(..., num_train_steps=...)`."
        num_steps = self._num_steps
        require(num_steps is not None, rule, UserError, fix, num_train_steps=None)
        warmup = self.num_warmup_steps if self.warmup is None else int(num_steps * self.warmup)
        return self._first_step, num_steps, warmup

    @property
    def is_set(self) -> bool:
        """Whether the length of the run is known."""
        return self._num_steps is not None

    def set_run(self, first_step: int, num_steps: int) -> None:
        """Lets the run begin at `first_step` of the optimizer, negative for a run that began
        before.

        Raises `UserError` if the run has fewer steps than the warm-up.
        """
        before = self._first_step, self._num_steps
        self._first_step = first_step
        if self.needs_run:
            self._num_steps = num_steps
            try:
                self.check_run(*self.run()[1:])
            except UserError:
                self._first_step, self._num_steps = before
                raise
        if self._numbers is not None:
            self._numbers.assign(self.run())

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps one run in the block, however many calls of `fit` it takes."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def resume(self, first_step: int, num_steps: int) -> None:
        """Sets the run of a checkpoint, with which the next `fit` goes on."""
        self.set_run(first_step, num_steps)
        self._is_resumed = True

    def continues(self, step: int) -> bool:
        """Returns whether a `fit` that begins at `step` belongs to the run that is set."""
        # A schedule without an end has no steps.
        is_over = bool(self._num_steps) and step >= self._first_step + self._num_steps
        resumes, self._is_resumed = self._is_resumed and not is_over, False
        return self._is_held or resumes or (step > 0 and not self.needs_run)

    def get_config(self):
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}


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
        return self.learning_rate * (1.0 - done)


class DecaySchedule(RunSchedule):
    """A schedule from `learning_rate` after the warm-up to `final_rate` at the end of the run."""

    def __init__(self, learning_rate, num_train_steps, num_warmup_steps, final_rate, warmup):
        super().__init__(num_train_steps, num_warmup_steps, warmup)
        self.learning_rate = learning_rate
        self.final_rate = final_rate

    def rate(self, step, num_steps, num_warmup_steps):
        height = self.height(step, num_steps, num_warmup_steps)
        return self.final_rate + (self.learning_rate - self.final_rate) * height

    def height(
        self, step: tf.Tensor, num_steps: tf.Tensor, num_warmup_steps: tf.Tensor
    ) -> tf.Tensor:
        """Returns a number from 1 to 0 for a step after the warm-up."""
        raise NotImplementedError(f"{type(self).__name__} must have `height`.")


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupCosineDecay(DecaySchedule):
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
        super().__init__(learning_rate, num_train_steps, num_warmup_steps, final_rate, warmup)

    def check_run(self, num_steps, num_warmup_steps):
        if not 0 <= num_warmup_steps < num_steps:
            received = f"num_warmup_steps={num_warmup_steps!r}, num_train_steps={num_steps}"
            raise user_error("`num_warmup_steps`", "be in [0, num_train_steps)", received)

    def height(self, step, num_steps, num_warmup_steps):
        done = (step - num_warmup_steps) / (num_steps - num_warmup_steps)
        return 0.5 * (1.0 + tf.cos(math.pi * tf.clip_by_value(done, 0.0, 1.0)))


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
            received = f"hidden_size={hidden_size}, num_warmup_steps={num_warmup_steps}"
            raise user_error("`hidden_size` and `num_warmup_steps`", "be at least 1", received)
        self.hidden_size = hidden_size
        self.factor = factor

    def rate(self, step, num_steps, num_warmup_steps):
        slope = tf.minimum(tf.math.rsqrt(step + 1.0), (step + 1.0) * self.num_warmup_steps**-1.5)
        return self.factor * self.hidden_size**-0.5 * slope


def begin_run(model: keras.Model, arguments: dict[str, Any]) -> None:
    """Sets the run of the schedule of a model, whose next steps a call of `fit` takes.

    The run begins `initial_epoch` epochs before the step that the optimizer is at, so that a
    resumed run has the rates of an uninterrupted one. A schedule without a number of steps ends
    with the last of `epochs`. One with a number only begins again with a new optimizer.

    `arguments` are all those of `keras.Model.fit`. Raises `UserError` if the number of batches must
    be known and is not, or a run is shorter than its warm-up.
    """
    schedule = _schedule_of(model)
    if schedule is None:
        return
    done, initial_epoch = keras_compat.steps_taken(model.optimizer), arguments["initial_epoch"]
    if not schedule.continues(done):
        is_counted = schedule.needs_run or initial_epoch > 0
        steps = _steps_per_epoch(arguments) if is_counted else 0
        if steps is None:
            raise UserError(
                "The number of batches must be known to a schedule that is spread over the run, or "
                f"that begins at `initial_epoch`. Received: {initial_epoch=}, "
                f"x={type(arguments['x']).__name__} of unknown length. Pass `steps_per_epoch` to "
                f"`fit`, or from the first epoch on `{type(schedule).__name__}(..., "
                "num_train_steps=...)` to `compile`."
            )
        schedule.set_run(done - steps * initial_epoch, steps * max(1, arguments["epochs"]))
    with model.distribute_strategy.scope():
        schedule.numbers()


@contextlib.contextmanager
def one_run(model: keras.Model, step: int, num_steps: int) -> Iterator[None]:
    """Makes all calls of `fit` in the block one run of `num_steps` steps, `step` of them done."""
    schedule = _schedule_of(model)
    if schedule is None:
        yield
        return
    done = keras_compat.steps_taken(model.optimizer)
    if schedule.needs_run or not done:
        schedule.set_run(done - step, num_steps)
    with schedule.held():
        yield


def run_of(model: keras.Model) -> list[int] | None:
    """Returns the first step and the number of steps of the run of a model's schedule.

    None if its schedule is not one of this package, or the run is not known yet.
    """
    schedule = _schedule_of(model)
    return None if schedule is None or not schedule.is_set else list(schedule.run()[:2])


def resume_run(model: keras.Model, run: list[int] | None) -> None:
    """Lets the next `fit` go on with a run that `run_of` returned, if it is not at its end."""
    schedule = _schedule_of(model)
    if schedule is None or run is None:
        return
    if run[1] or not schedule.needs_run:  # a run of `Noam` has no end
        schedule.resume(*run)


def _schedule_of(model):
    """Returns the schedule of a model's optimizer if it is one of this package."""
    schedule = keras_compat.learning_rate_schedule(getattr(model, "optimizer", None))
    return schedule if isinstance(schedule, RunSchedule) else None


def _steps_per_epoch(arguments):
    """Returns the number of batches of an epoch of `keras.Model.fit`; None if it is unknown."""
    x = arguments["x"]
    if arguments["steps_per_epoch"] is not None:
        return arguments["steps_per_epoch"]
    if isinstance(x, (keras.utils.PyDataset, keras_compat.DistributedAdapter)):
        return x.num_batches
    if callable(getattr(x, "cardinality", None)):
        count = int(x.cardinality())
        return count if count >= 0 else None  # tf.data's infinite and unknown are negative
    shape = getattr(next(iter(tf.nest.flatten(x)), None), "shape", ())
    if not shape:
        return None
    rows = int(shape[0])
    if arguments["validation_split"] and arguments["validation_data"] is None:
        rows = int(rows * (1.0 - arguments["validation_split"]))
    return -(-rows // (arguments["batch_size"] or DEFAULT_BATCH_SIZE))


def fit_steps(
    model: keras.Model,
    dataset_from: Callable[[int], object],
    num_train_steps: int,
    initial_step: int = 0,
    steps_per_epoch: int = 1000,
    **options,
) -> None:
    """Trains `model` with `model.fit` from step `initial_step` to step `num_train_steps`.

    Epochs end at multiples of `steps_per_epoch`, so a resumed run evaluates at the same steps as an
    uninterrupted run. A schedule without a number of steps is spread over `num_train_steps`.

    Args:
        model: A compiled model.
        dataset_from: A function: `dataset_from(step)` is the dataset that starts with the batch of
            the step after `step`.
        num_train_steps: The number of steps of the whole run.
        initial_step: The number of steps that are done.
        steps_per_epoch: The number of steps of an epoch.
        **options: Arguments of `fit`, such as `callbacks` and `validation_data`.

    Raises:
        UserError: If the run is already complete.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> batch = (model.tokenize(texts), model.targets(labels))
        >>> batches = tf.data.Dataset.from_tensors(batch).repeat()
        >>> bert_tf.training.fit_steps(model, lambda step: batches.skip(step), num_train_steps=2)
        >>> int(model.optimizer.iterations)
        2
    """
    rule = "must be more than the steps that are done"
    is_valid = initial_step < num_train_steps
    require(is_valid, rule, UserError, num_train_steps=num_train_steps, initial_step=initial_step)
    step = initial_step
    with one_run(model, initial_step, num_train_steps):
        while step < num_train_steps:
            epoch, done = divmod(step, steps_per_epoch)
            left = num_train_steps - step
            steps = min(steps_per_epoch - done, left)
            epochs = 1 if done else max(1, left // steps_per_epoch)  # all whole epochs in one call
            model.fit(
                dataset_from(step),
                initial_epoch=epoch,
                epochs=epoch + epochs,
                steps_per_epoch=steps,
                **{"verbose": 0, "shuffle": False, **options},
            )
            step += epochs * steps
