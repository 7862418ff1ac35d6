"""The base of schedules whose length is that of a run."""

import contextlib
from collections.abc import Iterator

import keras

from bert_tf.errors import UserError


class RunSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over the steps of a run, which `fit` finds where they are not given.

    Args:
        num_train_steps: The number of optimizer steps of the whole run; None: `fit` finds it.
        num_warmup_steps: The number of warm-up steps.
        warmup: In place of `num_warmup_steps`, the share of the run that is warm-up.

    Raises:
        UserError: If `warmup` is not in [0, 1], or is given with `num_warmup_steps`.
    """

    def __init__(self, num_train_steps: int | None, num_warmup_steps: int, warmup: float | None):
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
        self._first_step, self._num_steps = 0, num_train_steps
        self._is_held = self._is_resumed = False
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

    def set_run(self, first_step: int, num_steps: int) -> None:
        """Spreads the schedule over `num_steps` steps from the optimizer's step `first_step`.

        A graph that was traced before keeps the run that it was traced with.

        Raises:
            UserError: If the run has fewer steps than the warm-up.
        """
        self._check(num_steps)
        self._first_step, self._num_steps = first_step, num_steps

    @contextlib.contextmanager
    def held(self, first_step: int, num_steps: int) -> Iterator[None]:
        """Keeps one run in the block, however many calls of `fit` it takes."""
        self.set_run(first_step, num_steps)
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
        resumes = self._is_resumed and step < self._first_step + self._num_steps
        self._is_resumed = False
        return self._is_held or resumes

    def run(self) -> tuple[int, int, int]:
        """Returns the run's first step, its number of steps, and how many of them are warm-up.

        Raises:
            UserError: If `fit` has not found the number of steps.
        """
        if self._num_steps is None:
            raise UserError(
                "`num_train_steps` must be given outside of `fit`, which finds it. Received: "
                f"num_train_steps=None. Pass `{type(self).__name__}(..., num_train_steps=...)`."
            )
        return self._first_step, self._num_steps, self._warmup_steps(self._num_steps)
