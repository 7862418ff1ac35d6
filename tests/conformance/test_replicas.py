"""Every task: two replicas take the steps of one process with the same batches."""

import pytest

from tests.conformance import replicas
from tests.conformance.tasks import assert_same, tasks
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
    assert_same(of_two[name], replicas.fitted(name))
