"""The bases of this package's schedules: they continue where a call of `fit` begins."""

import contextlib
from collections.abc import Iterator

import keras

from bert_tf.errors import UserError


class RunSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over the steps of a run, which may begin before or after the optimizer's step 0.

    `fit` sets the run. A graph that was traced before keeps the run that it was traced with.
    """

    # Whether `fit` must say how long a run is. If not, an optimizer that has taken a step knows
    # where its run is.
    needs_run = False
    # Whether the run is known.
    is_set = True

    def __init__(self):
        self._first_step = 0
        self._is_held = self._is_resumed = False

    def set_run(self, first_step: int, num_steps: int) -> None:
        """Lets the run begin at the optimizer's step `first_step`.

        Args:
            first_step: The step, negative for a run that began before the optimizer.
            num_steps: The number of steps, for a schedule that needs it.

        Raises:
            UserError: If the run has fewer steps than the warm-up.
        """
        self._first_step = first_step

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
        resumes = self._is_resumed and self._is_before_the_end(step)
        self._is_resumed = False
        return self._is_held or resumes or (step > 0 and not self.needs_run)

    def _is_before_the_end(self, step: int) -> bool:
        return True

    def run(self) -> tuple[int, int, int]:
        """Returns the run's first step, its number of steps, and how many of them are warm-up.

        Raises:
            UserError: If `fit` has not found the number of steps.
        """
        raise NotImplementedError(f"{type(self).__name__} must have `run`.")


class SpreadSchedule(RunSchedule):
    """A schedule that is spread over the steps of a run, which `fit` counts if they are not given.

    Args:
        num_train_steps: The number of optimizer steps of the whole run; None: `fit` finds it.
        num_warmup_steps: The number of warm-up steps.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.

    Raises:
        UserError: If `warmup` is not in [0, 1], or is given with `num_warmup_steps`.
    """

    def __init__(self, num_train_steps: int | None, num_warmup_steps: int, warmup: float | None):
        super().__init__()
        if warmup is not None and num_warmup_steps:
            raise UserError(
                "At most one of `num_warmup_steps` and `warmup` must be given. Received: "
                f"num_warmup_steps={num_warmup_steps}, warmup={warmup}"
            )
        if warmup is not None and not 0.0 <= warmup <= 1.0:
            raise UserError(
                f"`warmup` must be in [0, 1], a share of the run. Received: warmup={warmup}"
            )
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.warmup = warmup
        self._num_steps = num_train_steps
        if num_train_steps is not None:
            self._check(num_train_steps)

    def _check(self, num_steps: int) -> None:
        """Raises `UserError` if a run of this length does not fit the warm-up."""
        warmup = self._warmup_steps(num_steps)
        if not 0 <= warmup <= num_steps or num_steps < 1:
            raise UserError(
                "`num_warmup_steps` must be in [0, num_train_steps]. Received: "
                f"num_warmup_steps={warmup}, num_train_steps={num_steps}"
            )

    def _warmup_steps(self, num_steps: int) -> int:
        return self.num_warmup_steps if self.warmup is None else int(num_steps * self.warmup)

    @property
    def needs_run(self) -> bool:
        """Whether `fit` must say how long a run is."""
        return self.num_train_steps is None

    @property
    def is_set(self) -> bool:
        """Whether the length of the run is known."""
        return self._num_steps is not None

    def set_run(self, first_step, num_steps):
        if self.needs_run:
            self._check(num_steps)
            self._num_steps = num_steps
        super().set_run(first_step, num_steps)

    def _is_before_the_end(self, step):
        return step < self._first_step + self._num_steps

    def run(self):
        if self._num_steps is None:
            raise UserError(
                "`num_train_steps` must be given outside of `fit`, which finds it. Received: "
                f"num_train_steps=None. Pass `{type(self).__name__}(..., num_train_steps=...)`."
            )
        return self._first_step, self._num_steps, self._warmup_steps(self._num_steps)
