"""Training checkpoints: killed runs are resumed exactly, damaged checkpoints are skipped."""

import json
import random
import resource
import shutil
import signal
import threading
import time

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertPretrainer
from bert_tf.base.supervision import PEER_GONE
from bert_tf.errors import CheckpointError, UserError
from bert_tf.training import AdamWeightDecay, TrainingCheckpoint, fit_steps
from bert_tf.training.callbacks import JsonLines, TerminateOnBadLoss, TrainingLog, read_json_lines
from bert_tf.training.checkpointing.checkpoint_files import (
    checkpoint_steps,
    read_checkpoint,
    write_checkpoint,
)
from bert_tf.training.distribution import WorkerHealthMonitor
from tests.training import processes, tiny_run


def fitted(directory, num_steps, step=None, model=None, callbacks=(), **options):
    """A model trained in this process with checkpoints in `directory`."""
    model = model or tiny_run.compiled()
    checkpoint = TrainingCheckpoint(directory, **{"save_every": 2, **options})
    step = checkpoint.restore(model) if step is None else step
    fit_steps(model, tiny_run.batches, num_steps, step, callbacks=[*callbacks, checkpoint])
    return model, checkpoint


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with the checkpoints of steps 2, 4, 6 and the model that wrote them."""
    directory = tmp_path_factory.mktemp("saved")
    model, _ = fitted(directory, 6)
    return directory, model


@pytest.fixture
def copied(saved, tmp_path):
    shutil.copytree(saved[0], tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


@pytest.fixture
def start_run(tmp_path):
    """Starts `tiny_run.train` in a folder of `tmp_path`; no run outlives the test."""
    started = []

    def start(name, num_steps):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        options = {"directory": str(directory), "num_steps": num_steps}
        started.append(processes.start(tiny_run.train, tmp_path / f"{name}.txt", **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for(condition, process, timeout=120.0):
    end = time.monotonic() + timeout
    while not condition():
        assert process.is_alive() and time.monotonic() < end, process.text()
        time.sleep(0.005)


def logged_step(directory):
    log = directory / "log.jsonl"
    lines = read_json_lines(log) if log.exists() else []
    return lines[-1]["step"] if lines else 0


def weights(directory):
    with np.load(directory / "weights.npz") as file:
        return {name: file[name] for name in file}


def test_killed_at_random_moments_ends_with_the_same_weights(tmp_path, start_run, is_full):
    steps, last = (160, 120) if is_full else (60, 30)  # the last kill comes early enough
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    whole_run = start_run("unbroken", steps)
    rng = random.Random(20)
    for moment in sorted(rng.uniform(1, last) for _ in range(20 if is_full else 1)):
        run = start_run("broken", steps)
        # The step is reached, then a random part of a few steps passes; some of the kills hit a
        # checkpoint that is being written.
        wait_for(lambda: logged_step(broken) >= moment, run)
        time.sleep(rng.uniform(0, 0.03))
        run.kill()
        assert run.wait() == -signal.SIGKILL
        print(f"killed at step {logged_step(broken)}: {checkpoint_steps(broken / 'checkpoints')}")
    # One more end, by SIGTERM, which saves at the step where it comes.
    killed_at = logged_step(broken)
    run = start_run("broken", steps)
    wait_for(lambda: logged_step(broken) > killed_at, run)
    run.terminate()
    assert run.wait() == 128 + signal.SIGTERM, run.text()
    assert "SIGTERM: saved" in run.text()
    assert checkpoint_steps(broken / "checkpoints")[-1] == logged_step(broken)
    processes.wait_for_success(start_run("broken", steps), whole_run)

    expected, received = weights(unbroken), weights(broken)
    assert expected.keys() == received.keys()
    for name in expected:
        np.testing.assert_array_equal(received[name], expected[name])
    # The log equals that of the uninterrupted run: each step occurs once.
    logs = [read_json_lines(path / "log.jsonl") for path in (unbroken, broken)]
    assert [line["step"] for line in logs[1]] == list(range(1, steps + 1))
    assert [line["loss"] for line in logs[1]] == [line["loss"] for line in logs[0]]
    assert checkpoint_steps(broken / "checkpoints") == [steps - 10, steps - 5, steps]
    assert [p.name for p in (broken / "checkpoints").iterdir() if p.name[0] == "."] == []


def test_state_is_everything(saved):
    directory, model = saved
    again = tiny_run.compiled()
    assert TrainingCheckpoint(directory).restore(again) == 6
    assert int(again.optimizer.iterations) == 6
    metrics = {id(v) for v in again.metrics_variables}
    pairs = [
        *zip(model.variables, again.variables),
        *zip(model.optimizer.variables, again.optimizer.variables),
    ]
    for mine, restored in pairs:
        if id(restored) not in metrics:
            np.testing.assert_array_equal(mine.numpy(), restored.numpy(), err_msg=mine.path)
    tensors, state = read_checkpoint(directory / "ckpt-6")
    assert state["step"] == 6
    assert sum("seed_generator" in name for name in tensors) == 4  # embeddings, 3 in the block


def test_loss_scale_goes_on(tmp_path):
    def half_precision():
        backbone = BertBackbone(tiny_run.config(), dtype="mixed_float16")
        model = BertPretrainer(backbone, dtype="mixed_float16")
        model.compile(AdamWeightDecay(1e-3))
        return model

    model = half_precision()
    checkpoint = TrainingCheckpoint(tmp_path)
    checkpoint.restore(model)
    model.optimizer.loss_scale.assign(64.0)
    fit_steps(model, tiny_run.batches, 2, callbacks=[checkpoint])
    again = half_precision()
    assert TrainingCheckpoint(tmp_path).restore(again) == 2
    assert float(again.optimizer.loss_scale) == 64.0
    assert int(again.optimizer.iterations) == int(model.optimizer.iterations)


@pytest.mark.parametrize(
    "damage,words",
    [
        ("truncate", "bytes. Received"),
        ("flip", "SHA-256"),
        ("delete", "Received: no file"),
        ("manifest", "manifest.json"),
    ],
)
def test_damaged_checkpoint_is_passed_over(copied, caplog, damage, words):
    newest = copied / "ckpt-6"
    file = newest / "variables.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "delete":
        file.unlink()
    else:
        (newest / "manifest.json").write_text("{")
    model = tiny_run.compiled()
    assert TrainingCheckpoint(copied).restore(model) == 4
    assert "ckpt-6" in caplog.text and words in caplog.text and "before it" in caplog.text
    assert (copied / "damaged-ckpt-6").is_dir()
    if damage == "truncate":  # the run is resumed from there and replaces the damaged one
        fitted(copied, 6, model=model)
        assert checkpoint_steps(copied) == [2, 4, 6]


def test_only_damaged_checkpoints_are_an_error(tmp_path):
    (tmp_path / "ckpt-3").mkdir()
    with pytest.raises(CheckpointError, match="all are damaged"):
        TrainingCheckpoint(tmp_path).restore(tiny_run.compiled())


def test_checkpoint_of_another_network_lists_what_differs(copied):
    other = tiny_run.compiled(hidden_size=16, num_hidden_layers=2)
    with pytest.raises(CheckpointError) as error:
        TrainingCheckpoint(copied).restore(other)
    assert "hidden_size=32 instead of 16" in str(error.value)
    assert "num_hidden_layers=1 instead of 2" in str(error.value)
    other = tiny_run.compiled()
    other.compile(keras.optimizers.SGD(1e-2))
    with pytest.raises(CheckpointError, match="optimizer='AdamWeightDecay' instead of 'SGD'"):
        TrainingCheckpoint(copied).restore(other)


def test_other_settings_are_logged(tmp_path, caplog):
    model, _ = fitted(tmp_path, 2, settings={"seed": 1, "files": ["a"]})
    TrainingCheckpoint(tmp_path, settings={"seed": 2, "files": ["a"]}).restore(model)
    assert "saved with seed=1, now it is 2" in caplog.text and "files" not in caplog.text


def test_forgotten_restore_does_not_destroy(copied):
    with pytest.raises(CheckpointError, match="Call `restore"):
        fitted(copied, 3, step=0)
    assert checkpoint_steps(copied) == [2, 4, 6]


def test_a_best_that_cannot_be_read_is_none(copied, caplog):
    model = tiny_run.compiled()
    for content in (b"{", b"[]", b'{"step": 6}', b'{"step": 6, "monitor": "loss", "value": "x"}'):
        (copied / "best.json").write_bytes(content)
        checkpoint = TrainingCheckpoint(copied, monitor="loss")
        assert checkpoint.restore(model) == 6 and checkpoint.best_step is None
        assert "best.json" in caplog.text
        caplog.clear()


def test_keeps_the_last_and_the_best(tmp_path):
    class Metric(keras.callbacks.Callback):
        """Logs a validation metric that is best at step 4."""

        def on_epoch_end(self, epoch, logs=None):
            logs["val_loss"] = abs(epoch - 1)

    model = tiny_run.compiled()
    options = dict(save_every=2, keep=1, monitor="val_loss")
    checkpoint = TrainingCheckpoint(tmp_path, **options)
    callbacks = [Metric(), checkpoint]
    fit_steps(model, tiny_run.batches, 8, steps_per_epoch=2, callbacks=callbacks)
    assert checkpoint_steps(tmp_path) == [4, 8] and checkpoint.best_step == 4
    resumed = TrainingCheckpoint(tmp_path, **options)
    assert resumed.restore(model) == 8 and resumed.best_step == 4
    assert json.loads((tmp_path / "best.json").read_text())["value"] == 0


def test_full_disk_leaves_the_older_checkpoints(copied):
    model = tiny_run.compiled()
    checkpoint = TrainingCheckpoint(copied, save_every=1)
    step = checkpoint.restore(model)
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel then refuses to let a file grow past this, as a full disk would.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(CheckpointError) as error:
            fit_steps(model, tiny_run.batches, 8, step, callbacks=[checkpoint])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "ckpt-7 could not be written" in str(error.value)
    assert "ckpt-6 is the newest" in str(error.value)
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
    fitted(copied, 8, model=model)
    assert checkpoint_steps(copied)[-1] == 8


def test_write_is_whole_or_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="could not be written"):
        write_checkpoint(tmp_path / "file", 1, {"a": np.zeros(3)}, {})


def test_nan_loss_stops_with_the_batch_written_aside(copied, tmp_path):
    model = tiny_run.compiled()
    checkpoint = TrainingCheckpoint(copied, save_every=2)
    step = checkpoint.restore(model)
    log = TrainingLog(2, [JsonLines(tmp_path / "log.jsonl")], tiny_run.BATCH, initial_step=step)

    def from_step(step):
        return tiny_run.batches(step, bad_step=8)

    stop = TerminateOnBadLoss(checkpoint, lambda s: next(iter(from_step(s))), tmp_path, step)
    with pytest.raises(UserError) as error:
        fit_steps(model, from_step, 20, step, callbacks=[stop, log, checkpoint])
    assert "loss=nan at step 9" in str(error.value)
    assert f"{copied}/ckpt-8" in str(error.value)
    with np.load(tmp_path / "bad-batch-9.npz") as batch:
        assert np.isnan(batch["1/masked_weights"]).all()
        expected = next(iter(tiny_run.batches(8)))[0]["token_ids"]
        np.testing.assert_array_equal(batch["0/token_ids"], expected)
    assert [line["step"] for line in read_json_lines(tmp_path / "log.jsonl")] == [8]


def test_weights_that_are_not_finite_are_not_saved(copied):
    model = tiny_run.compiled()
    checkpoint = TrainingCheckpoint(copied)
    checkpoint.restore(model)
    model.weights[3].assign(np.full(model.weights[3].shape, np.inf))
    checkpoint.set_model(model)
    checkpoint.step = 7
    with pytest.raises(CheckpointError, match="holds NaN or infinity.*ckpt-6"):
        checkpoint.save()
    assert checkpoint_steps(copied) == [2, 4, 6]


def test_nothing_left_to_train(tmp_path):
    with pytest.raises(UserError, match="initial_step=20"):
        fit_steps(tiny_run.compiled(), tiny_run.batches, 20, 20)


def knock_at_a_closed_port():
    """A process whose other worker has ended."""
    watch = WorkerHealthMonitor(lambda: "out/ckpt-5", interval=0.01)
    watch._stop = threading.Event()
    watch._watch({"worker 1": "localhost:9"})


def test_leaves_when_a_worker_does_not_answer(tmp_path):
    process = processes.start(knock_at_a_closed_port, tmp_path / "text")
    assert process.wait() == PEER_GONE
    assert "worker 1 (localhost:9) is gone" in process.text()
    assert "newest checkpoint is out/ckpt-5" in process.text()
