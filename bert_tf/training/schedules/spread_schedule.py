"""The base of schedules whose length is that of a run."""

from bert_tf.errors import UserError
from bert_tf.training.schedules.run_schedule import RunSchedule


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
