"""Every task: two replicas take the steps of one process with the same batches."""

import keras
import pytest

from tests.conformance import replicas
from tests.conformance.tasks import TASKS, assert_same, make, tasks
from tests.training.processes import Results, parameters


@pytest.fixture(scope="module")
def of_two(tmp_path_factory, request):
    """The logs and weights of two replicas, by task."""
    log = tmp_path_factory.mktemp("replicas") / "log"
    with Results(replicas.train, log, parameters(request, "name")) as results:
        yield results


@tasks("training")
def test_two_replicas_are_one(name, of_two):
    """Of 5 weighted rows and then of 1: the same loss, metrics and weights."""
    assert_same(of_two[name], replicas.fitted(name))


@pytest.mark.parametrize("name", [replicas.TEXT + "text classification"])
def test_two_replicas_train_on_raw_text(name, of_two):
    """On nothing else: the model has never seen a token dictionary."""
    task = TASKS[name.removeprefix(replicas.TEXT)]
    model = make(task, config=replicas.ONE_BLOCK)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True, **task.compiled)
    logs = model.train_on_batch(task.features, task.targets, return_dict=True)
    assert_same(of_two[name], (logs, [variable.numpy() for variable in model.trained_variables()]))
