"""The table of the tasks, collected from their folders, and what parametrises tests with it."""

import importlib

import pytest

from bert_tf.tasks import NAMES
from tests.conformance.task import Task

TASKS: dict[str, Task] = {}
for folder in NAMES:
    TASKS |= importlib.import_module(f"tests.tasks.{folder}.conformance").TASKS


# Their inputs, labels and losses differ most. Text classification is between them, and is what most
# other tests train: tests/training, tests/models and tests/tasks/text_classification.
FEW = ("masked LM", "multiple choice")


def tasks(
    *needed: str,
    few: bool | tuple[str, ...] = False,
    on_text: bool = False,
    backends: tuple[str, ...] = (),
):
    """Parametrises a test with the names of the tasks that have all of `needed`.

    Args:
        *needed: Keys of `Task.lacks`.
        few: Whether only the full suite takes all of them, and `make test` takes `FEW`; or the
            names of those that it takes.
        on_text: Whether to take only tasks that train on raw text.
        backends: Of the ops; each is a case with the argument `backend`. A task does not know of
            them, so that `make test` takes `FEW` with the reference.
    """

    def case(name, *backend):
        chosen = few if isinstance(few, tuple) else FEW
        is_more = name not in chosen and (few or backend == ("reference",))
        marks = pytest.mark.full if is_more or TASKS[name].is_variant else ()
        return pytest.param(name, *backend, marks=marks)

    names = [name for name, task in TASKS.items() if not set(needed) & set(task.lacks)]
    names = [name for name in names if TASKS[name].trains_on_text or not on_text]
    return pytest.mark.parametrize(
        "name, backend" if backends else "name",
        [case(name, *backend) for name in names for backend in list(zip(backends)) or [()]],
        scope="module",  # the tests of a task come one after the other
    )
