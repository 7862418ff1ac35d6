"""Which steps of a run a call of `fit` takes, for the schedules of this package."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError
from bert_tf.training.schedules.run_schedule import RunSchedule

BATCH_SIZE = 32  # Keras's own


def spread_schedule(optimizer: Any, arguments: dict[str, Any]) -> tuple[int, int, int] | None:
    """Sets the run of the optimizer's schedule, whose next steps a call of `fit` takes.

    The run begins `initial_epoch` epochs before the step that the optimizer is at, so that a
    resumed run has the rates of an uninterrupted one. A schedule without a number of steps ends
    with the last of `epochs`. One with a number only begins again with a new optimizer.

    Args:
        optimizer: The optimizer of a compiled model, or None.
        arguments: The arguments of `keras.Model.fit`, all of them.

    Returns:
        The run, as `RunSchedule.run` gives it; None without such a schedule.

    Raises:
        UserError: If the number of batches must be known and is not, or a run is shorter than its
            warm-up.
    """
    schedule = _schedule_of(optimizer)
    if schedule is None:
        return None
    done, initial_epoch = _steps_done(optimizer), arguments["initial_epoch"]
    if not schedule.continues(done):
        is_counted = schedule.needs_run or initial_epoch > 0
        steps = steps_per_epoch(arguments) if is_counted else 0
        if steps is None:
            raise UserError(
                "The number of batches must be known to a schedule that is spread over the run, or "
                f"that begins at `initial_epoch`. Received: {initial_epoch=}, "
                f"x={type(arguments['x']).__name__} of unknown length. Pass `steps_per_epoch` to "
                f"`fit`, or from the first epoch on `{type(schedule).__name__}(..., "
                "num_train_steps=...)` to `compile`."
            )
        total = steps * max(1, arguments["epochs"])
        schedule.set_run(done - steps * initial_epoch, total)
    return schedule.run()


@contextlib.contextmanager
def one_run(model: keras.Model, step: int, num_steps: int) -> Iterator[None]:
    """Makes all calls of `fit` in the block one run of `num_steps` steps, `step` of them done."""
    schedule = _schedule_of(getattr(model, "optimizer", None))
    if schedule is None:
        yield
        return
    done = _steps_done(model.optimizer)
    if schedule.needs_run or not done:
        schedule.set_run(done - step, num_steps)
    with schedule.held():
        yield


def run_of(model: keras.Model) -> list[int] | None:
    """Returns the first step and the number of steps of the run of a model's schedule.

    None if its schedule is not one of this package, or the run is not known yet.
    """
    schedule = _schedule_of(model.optimizer)
    return None if schedule is None or not schedule.is_set else list(schedule.run()[:2])


def resume_run(model: keras.Model, run: list[int] | None) -> None:
    """Lets the next `fit` go on with a run that `run_of` returned, if it is not at its end."""
    schedule = _schedule_of(model.optimizer)
    if schedule is None or run is None:
        return
    if run[1] or not schedule.needs_run:  # a run of `Noam` has no end
        schedule.resume(*run)


def steps_per_epoch(arguments: dict[str, Any]) -> int | None:
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
    return -(-rows // (arguments["batch_size"] or BATCH_SIZE))


def _schedule_of(optimizer):
    """Returns the optimizer's schedule if it is one of this package."""
    schedule = keras_compat.learning_rate_schedule(optimizer)
    return schedule if isinstance(schedule, RunSchedule) else None


def _steps_done(optimizer):
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    done = keras_compat.steps_taken(optimizer)
    return done * (optimizer.gradient_accumulation_steps or 1)
