"""The table of the tasks, collected from their folders, and what parametrises tests with it."""

import importlib

import pytest

from bert_tf.tasks import NAMES
from tests.conformance.task import Task

TASKS: dict[str, Task] = {}
for folder in NAMES:
    TASKS |= importlib.import_module(f"tests.tasks.{folder}.conformance").TASKS


def tasks(*needed: str, traces: bool = False):
    """Parametrises a test with the names of the tasks that have all of `needed`.

    Args:
        *needed: Keys of `Task.lacks`.
        traces: Whether the test traces steps of training.
    """
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(
                name, marks=pytest.mark.full if task.is_variant or (traces and task.is_slow) else ()
            )
            for name, task in TASKS.items()
            if not set(needed) & set(task.lacks)
        ],
        scope="module",  # the tests of a task come one after the other
    )
