"""Replicas and workers are one process with the same global batch, step for step."""

import json
import socket

import numpy as np
import pytest

from tests.models import replicas
from tests.training.processes import start


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The logs and weights of each arrangement."""
    directory = tmp_path_factory.mktemp("runs")
    arrangements = {
        "one": (["CPU:0"], 1),
        "mirrored": (["CPU:0", "CPU:1"], 1),
        "mirrored, accumulated": (["CPU:0", "CPU:1"], 2),
    }
    processes = []
    for name, (devices, parts) in arrangements.items():
        processes.append(
            start(
                replicas.train,
                directory / f"{name}.log",
                path=str(directory / f"{name}.npz"),
                devices=devices,
                gradient_accumulation_steps=parts,
            )
        )
    ports = free_ports(2)
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    for index in range(2):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        processes.append(
            start(
                replicas.train_worker,
                directory / f"worker {index}.log",
                {"TF_CONFIG": json.dumps(task)},
                path=str(directory / "workers.npz"),
            )
        )
    for process in processes:
        assert process.wait() == 0, process.text()
    return {name: dict(np.load(directory / f"{name}.npz")) for name in (*arrangements, "workers")}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.parametrize("name", ["mirrored", "mirrored, accumulated", "workers"])
def test_the_same_global_batch_gives_the_same_steps(runs, name):
    expected, received = runs["one"], runs[name]
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


def test_evaluation_is_that_of_all_replicas(runs):
    for key, value in runs["one"].items():
        if key.startswith("val_"):
            received = runs["mirrored"][key]
            np.testing.assert_allclose(received, value, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(
    "comparison", [replicas.compare_reductions, replicas.compare_low_precision]
)
def test_two_replicas_take_the_steps_of_one(comparison, tmp_path):
    process = start(comparison, tmp_path / "comparison.log")
    assert process.wait() == 0, process.text()
