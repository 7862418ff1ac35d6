"""Every task: two replicas take the step of one process with the same batch."""

import multiprocessing

import keras
import pytest

from tests.conformance import replicas
from tests.conformance.tasks import TASKS, WEIGHTS, assert_same, make, tasks
from tests.training.processes import start


@pytest.fixture(scope="module")
def step_of_two(tmp_path_factory, request):
    """A function from a task's name to its logs and weights after a step of two replicas."""
    log = tmp_path_factory.mktemp("replicas") / "log"
    receiver, sender = multiprocessing.Pipe(duplex=False)
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.parent is request.node
    ]
    process = start(replicas.train, log, names=names, results=sender)
    sender.close()  # so that reading ends where the process does
    found = {}

    def step(name):
        while name not in found:
            if not receiver.poll(120):
                raise AssertionError(f"no step in two minutes:\n{process.text()}")
            try:
                received, *found[received] = receiver.recv()
            except EOFError:
                process.wait()
                raise AssertionError(process.text()) from None
        return found[name]

    yield step
    process.kill()


@tasks("training")
def test_two_replicas_are_one(name, step_of_two):
    """Of 6 weighted rows: the same loss, metrics and weights."""
    task = TASKS[name]
    model = make(task)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True, **task.compiled)
    logs = model.train_on_batch(task.features, task.targets, WEIGHTS, return_dict=True)
    assert_same(step_of_two(name), [logs, [v.numpy() for v in model.trained_variables()]])
