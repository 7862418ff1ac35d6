"""Heartbeats after batches, by which tools/launch_workers.py notices a worker that hangs."""

import os
import time

import keras
import numpy as np
import pytest

from bert_tf.base.supervision import HEARTBEAT_VARIABLE, beat, keep_beating
from bert_tf.training.callbacks import Heartbeat


@pytest.fixture
def beats(tmp_path, monkeypatch):
    """A function that returns whether there was a beat since its last call."""
    path = tmp_path / "heartbeat"
    path.touch()
    monkeypatch.setenv(HEARTBEAT_VARIABLE, str(path))

    def beats():
        found = os.stat(path).st_mtime_ns != 0
        os.utime(path, (0, 0))
        return found

    beats()
    return beats


def test_every_loop_beats(beats):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    one = np.ones([1, 1], np.float32)
    for loop, arrays in (
        (model.fit, [one, one]),
        (model.evaluate, [one, one]),
        (model.predict, [one]),
    ):
        loop(*arrays, verbose=0)
        assert not beats()
        loop(*arrays, verbose=0, callbacks=[Heartbeat()])
        assert beats()


def test_beats_go_on_without_batches(beats):
    keep_beating(interval=0.01)
    for _ in range(2):
        end = time.monotonic() + 10
        while not beats():
            assert time.monotonic() < end
            time.sleep(0.01)


def test_without_a_launcher_it_does_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(HEARTBEAT_VARIABLE, str(tmp_path / "gone"))
    beat()
    monkeypatch.delenv(HEARTBEAT_VARIABLE)
    beat()
    assert not list(tmp_path.iterdir())
