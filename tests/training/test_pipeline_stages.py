"""A model on several devices is the same model on one, bit for bit."""

import functools

import pytest

from tests.conformance.tasks import TASKS
from tests.models import pipelines
from tests.models.pipelines import TASK, TRACED
from tests.training.processes import Results, parameters


@pytest.fixture(scope="module")
def checks(tmp_path_factory, request):
    """Each check gives None or raises; one process makes all of them."""
    directory = tmp_path_factory.mktemp("pipelines")
    check = functools.partial(pipelines.check, directory=str(directory))
    with Results(check, directory / "log", parameters(request, "name")) as results:
        yield results


UNTRACED = ("placed", "saved", "refused")
NAMES = [
    *pipelines.CHECKS,
    *(TRACED + name for name in pipelines.CHECKS if name not in UNTRACED),
    *(
        each
        for name, task in TASKS.items()
        if "training" not in task.lacks
        for each in (TASK + name, TRACED + TASK + name)
    ),
]
ALWAYS = ("recomputed", TRACED + "two stages", TRACED + "schedule", *UNTRACED)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.full) for name in NAMES]
)
def test_a_pipeline_is_one_device(checks, name):
    assert checks[name] is None
