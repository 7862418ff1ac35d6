"""The base of this package's schedules: they continue where a call of `fit` begins."""

import contextlib
from collections.abc import Iterator

import keras


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
