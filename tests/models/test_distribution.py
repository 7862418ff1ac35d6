"""Replicas and workers are one process with the same global batch, step for step."""

import json
import socket

import numpy as np
import pytest

from tests.models import replicas
from tests.training.processes import start


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function from an arrangement's name to its logs and weights; all are started at once."""
    directory = tmp_path_factory.mktemp("runs")
    arrangements = {
        "one": (["CPU:0"], 1),
        "mirrored": (["CPU:0", "CPU:1"], 1),
        "mirrored, accumulated": (["CPU:0", "CPU:1"], 2),
    }
    log = directory / "replicas.log"
    processes = {
        "replicas": [
            start(replicas.train, log, directory=str(directory), arrangements=arrangements)
        ],
        "workers": [],
    }
    ports = free_ports(2)
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    for index in range(2):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        worker = start(
            replicas.train_worker,
            directory / f"worker {index}.log",
            {"TF_CONFIG": json.dumps(task)},
            path=str(directory / "workers.npz"),
        )
        processes["workers"].append(worker)

    def result(name):
        for process in processes["replicas" if name in arrangements else name]:
            assert process.wait() == 0, process.text()
        return dict(np.load(directory / f"{name}.npz"))

    return result


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.parametrize("name", ["mirrored", "mirrored, accumulated", "workers"])
def test_the_same_global_batch_gives_the_same_steps(run, name):
    expected, received = run("one"), run(name)
    assert {"loss", "masked_lm_loss", "gradient_norm", "perplexity"} <= set(received)
    for log in (
        "loss",
        "masked_lm_loss",
        "next_sentence_loss",
        "masked_lm_accuracy",
        "next_sentence_accuracy",
        "gradient_norm",
        "padding_share",
    ):
        assert received[log].shape == (replicas.STEPS,)
        np.testing.assert_allclose(received[log], expected[log], atol=1e-5, err_msg=log)
    for key in expected:
        if key.startswith("weight_"):
            np.testing.assert_allclose(received[key], expected[key], atol=1e-4, err_msg=key)
    difference = max(np.abs(received[k] - expected[k]).max() for k in ("loss", "masked_lm_loss"))
    print(f"{name}: largest difference in loss over {replicas.STEPS} steps {difference:.1e}")


def test_evaluation_is_that_of_all_replicas(run):
    mirrored = run("mirrored")
    for key, value in run("one").items():
        if key.startswith("val_"):
            received = mirrored[key]
            np.testing.assert_allclose(received, value, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(
    "comparison", [replicas.compare_reductions, replicas.compare_low_precision]
)
def test_two_replicas_take_the_steps_of_one(comparison, tmp_path):
    process = start(comparison, tmp_path / "comparison.log")
    assert process.wait() == 0, process.text()
