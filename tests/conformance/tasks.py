"""The table of the tasks, collected from their folders, and what parametrises tests with it."""

import importlib

import pytest

from bert_tf.tasks import NAMES
from tests.conformance.task import Task

TASKS: dict[str, Task] = {}
for folder in NAMES:
    TASKS |= importlib.import_module(f"tests.tasks.{folder}.conformance").TASKS


# Their inputs, labels and losses differ most.
FEW = ("text classification", "masked LM", "multiple choice")


def tasks(*needed: str, few: bool = False):
    """Parametrises a test with the names of the tasks that have all of `needed`.

    Args:
        *needed: Keys of `Task.lacks`.
        few: Whether only the full suite takes all of them, and `make test` takes `FEW`.
    """
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(
                name, marks=pytest.mark.full if task.is_variant or (few and name not in FEW) else ()
            )
            for name, task in TASKS.items()
            if not set(needed) & set(task.lacks)
        ],
        scope="module",  # the tests of a task come one after the other
    )
