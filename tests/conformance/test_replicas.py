"""Every task: two replicas take the steps of one process with the same batches."""

import keras
import pytest

from tests.conformance import replicas
from tests.conformance.task import ONE_BLOCK, assert_same, make
from tests.conformance.tasks import TASKS, tasks
from tests.training.processes import Results, parameters


@pytest.fixture(scope="module")
def of_two(tmp_path_factory, request):
    """The logs and weights of two replicas, by task."""
    log = tmp_path_factory.mktemp("replicas") / "log"
    with Results(replicas.train, log, parameters(request, "name")) as results:
        yield results


@tasks("training", few=True)
def test_two_replicas_are_one(name, of_two):
    """Of 5 weighted rows and then of 1: the same loss, metrics and weights."""
    assert_same(of_two[name], replicas.fitted(name))


TRACED = [
    pytest.param(prefix + name, marks=() if name == one_checked else pytest.mark.full)
    for prefix, one_checked in ((replicas.TRACED, None), (replicas.IN_PARTS, "pre-training"))
    for name, task in TASKS.items()
    if "training" not in task.lacks
]


@pytest.mark.parametrize("name", TRACED)
def test_a_traced_step_of_two_replicas_is_that_of_one(name, of_two):
    """As users train; also in parts, where the masked words of replicas and parts differ."""
    assert_same(of_two[name], replicas.fitted(name))


@pytest.mark.parametrize("name", [replicas.TEXT + "text classification"])
def test_two_replicas_train_on_raw_text(name, of_two):
    """On nothing else: the model has never seen a token dictionary."""
    task = replicas.task_of(name)
    model = make(task, config=ONE_BLOCK)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True, **task.compiled)
    logs = model.train_on_batch(task.features, task.targets, return_dict=True)
    assert_same(of_two[name], (logs, [variable.numpy() for variable in model.trained_variables()]))
