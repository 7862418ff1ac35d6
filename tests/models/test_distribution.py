"""Replicas and workers are one process with the same global batch, step for step."""

import json
import socket

import pytest

from tests.models import replicas
from tests.training.processes import Results, parameters, start, wait_for_success


@pytest.fixture(scope="module")
def checks(tmp_path_factory, request):
    """Each check gives None or raises; one process makes all of them."""
    log = tmp_path_factory.mktemp("replicas") / "log"
    with Results(replicas.check, log, parameters(request, "name")) as results:
        yield results


# tests/conformance/test_replicas.py trains on raw text, too.
ONLY_IN_FULL = ("step in parts", "reductions", "texts by rows", "texts by tokens")
QUICK_LOSSES = ("CoSENT", "mean of layers", "TSDAE")
ONLY_IN_FULL += tuple(f"loss {name}" for name in replicas.LOSSES if name not in QUICK_LOSSES)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in ONLY_IN_FULL else ())
        for name in replicas.CHECKS
    ],
)
def test_two_replicas_are_one(checks, name):
    assert checks[name] is None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.full
def test_two_workers_are_one_process(tmp_path):
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    workers = []
    for index in range(2):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        environment = {"TF_CONFIG": json.dumps(task)}
        workers.append(start(replicas.check_worker, tmp_path / f"{index}.log", environment))
    wait_for_success(*workers)
