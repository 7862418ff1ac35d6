"""Strategies by name, the roles of workers, what they exchange, and when they leave."""

import json
import socket
import threading
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training.distribution import WorkerHealthMonitor, is_chief, make_strategy, strategies
from bert_tf.training.distribution.strategies import worker_addresses
from tests.training import processes
from tests.training.distribution import two_devices

CLUSTER = {"worker": ["a:1", "b:2"]}


def strategy_of(cluster, task_type, task_id):
    """What `is_chief` and `worker_addresses` read of a strategy of several machines."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type=task_type, task_id=task_id
    )
    return types.SimpleNamespace(cluster_resolver=resolver)


def test_one_device_is_the_chief_without_others():
    strategy = make_strategy("one_device")
    assert strategy.num_replicas_in_sync == 1 and is_chief(strategy)
    assert is_chief() and worker_addresses() == {}


@pytest.mark.parametrize(
    "cluster, task, chief, others",
    [
        (CLUSTER, ("worker", 0), True, {"worker 1": "b:2"}),
        (CLUSTER, ("worker", 1), False, {"worker 0": "a:1"}),
        ({"chief": ["c:3"], **CLUSTER}, ("chief", 0), True, {"worker 0": "a:1", "worker 1": "b:2"}),
        (
            {"chief": ["c:3"], **CLUSTER},
            ("worker", 0),
            False,
            {"chief 0": "c:3", "worker 1": "b:2"},
        ),
        ({"evaluator": ["d:4"], **CLUSTER}, ("worker", 0), True, {"worker 1": "b:2"}),
    ],
)
def test_roles_of_workers(cluster, task, chief, others):
    strategy = strategy_of(cluster, *task)
    assert is_chief(strategy) == chief
    assert worker_addresses(strategy) == others


@pytest.mark.parametrize(
    "name, words",
    [
        ("parameter_server", "ClusterCoordinator.*multi_worker_mirrored"),
        ("tpu", "`tpu` must be an available TPU"),
        ("mirror", r"`name` must be one of .*Received: name='mirror'"),
    ],
)
def test_strategies_that_are_not_there_are_refused(name, words):
    with pytest.raises(UserError, match=words):
        make_strategy(name, tpu="absent" if name == "tpu" else None)


@pytest.mark.parametrize(
    "value, words",
    [
        (None, "no TF_CONFIG. For one machine use 'mirrored'"),
        ("{", "`TF_CONFIG` must describe the cluster"),
        ([], "`TF_CONFIG` must describe the cluster"),
        ({"cluster": CLUSTER}, "`TF_CONFIG` must describe the cluster"),
        ({"cluster": CLUSTER, "task": {"type": "ps", "index": 0}}, "must describe the cluster"),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}, r"in \[0, 2\).*index=2"),
        (
            {"cluster": {**CLUSTER, "ps": ["e:5"]}, "task": {"type": "worker", "index": 0}},
            r"only 'worker' and 'chief'. Received: \['ps'\]",
        ),
    ],
)
def test_a_cluster_that_is_not_described_is_refused(monkeypatch, value, words):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(UserError, match=words):
        make_strategy("multi_worker_mirrored")


def test_two_devices_of_one_machine(tmp_path):
    names = ["replicas", "masks", "largest", "optimizers", "sums", "clip"]
    with processes.Results(two_devices.results, tmp_path / "output", names) as results:
        assert results["replicas"] == 2
        assert results["largest"] == [7, -2]
        assert max(results["optimizers"]) < 1e-6
        assert results["sums"] is None and results["clip"] is None  # else they would raise
        masks = [mask for step in results["masks"] for mask in step]  # of 2 steps and 2 replicas
    assert all(0.4 < mask.mean() < 0.6 for mask in masks)
    for index, mask in enumerate(masks):
        for other in masks[index + 1 :]:
            assert 0.4 < np.mean(mask == other) < 0.6  # as independent ones are


class Left(Exception):
    """Ends the thread that watches, as `leave` ends the process."""


@pytest.fixture
def leaving(monkeypatch):
    """Calls of `leave`, which ends no process here."""
    calls, event = [], threading.Event()

    def leave(reason, checkpoint):
        calls.append((reason, checkpoint))
        event.set()
        raise Left

    monkeypatch.setattr(strategies, "leave", leave)
    return calls, event


def watch(monitor, addresses):
    monitor._stop = threading.Event()
    with pytest.raises(Left):
        monitor._watch(addresses)


def test_a_closed_port_is_a_worker_that_is_gone(leaving):
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    monitor = WorkerHealthMonitor(lambda: "out/ckpt-5", interval=0.001)
    watch(monitor, {"worker 1": f"localhost:{port}"})
    ((reason, checkpoint),) = leaving[0]
    assert f"worker 1 (localhost:{port}) is gone" in reason and checkpoint == "out/ckpt-5"


def test_no_answer_for_the_patience_is_a_worker_that_is_gone(leaving, monkeypatch):
    def no_route(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(strategies.socket, "create_connection", no_route)
    watch(WorkerHealthMonitor(interval=0.001, patience=0.02), {"worker 1": "a:1"})
    ((reason, checkpoint),) = leaving[0]
    assert "is gone: no answer" in reason and checkpoint is None


def test_a_worker_that_answers_stays(leaving):
    with socket.create_server(("localhost", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
        monitor = WorkerHealthMonitor(interval=0.001, patience=5.0)
        monitor.set_model(
            types.SimpleNamespace(
                distribute_strategy=strategy_of({"worker": [address, address]}, "worker", 0)
            )
        )
        monitor.on_train_begin()
        for _ in range(5):
            server.accept()[0].close()
        monitor.stop()
    assert not leaving[1].wait(0.05) and not leaving[0]
