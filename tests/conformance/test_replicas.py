"""Every task: two replicas take the step of one process with the same batch."""

import keras
import pytest

from tests.conformance import replicas
from tests.conformance.tasks import TASKS, WEIGHTS, assert_same, make, tasks
from tests.training.processes import Results, parameters


@pytest.fixture(scope="module")
def steps(tmp_path_factory, request):
    """The logs and weights after a step of two replicas, by task."""
    log = tmp_path_factory.mktemp("replicas") / "log"
    names = parameters(request, "name")
    with Results(replicas.train, log, names) as results:
        yield results


def step_of_one(task, weights=None):
    model = make(task, config=replicas.ONE_BLOCK)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True, **task.compiled)
    logs = model.train_on_batch(task.features, task.targets, weights, return_dict=True)
    return logs, [variable.numpy() for variable in model.trained_variables()]


@tasks("training")
def test_two_replicas_are_one(name, steps):
    """Of 6 weighted rows: the same loss, metrics and weights."""
    assert_same(steps[name], step_of_one(TASKS[name], WEIGHTS))


@pytest.mark.parametrize("name", [replicas.TEXT + "text classification"])
def test_two_replicas_train_on_raw_text(name, steps):
    """On nothing else: the model has never seen a token dictionary."""
    assert_same(steps[name], step_of_one(TASKS[name.removeprefix(replicas.TEXT)]))
