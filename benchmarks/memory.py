"""Measures the memory of a training step, and how time and memory grow with the length."""

import contextlib
import os
import statistics
from collections.abc import Callable

from . import models, workloads
from .peers import OURS
from .peers.base import read_config
from .report import Report, Table
from .timing import Spread
from .turns import Turns
from .workers import PeerFailed, scratch_folder
from .workloads import Workload

_STEPS = 3  # allocators reach their peak in the second step
_MIB = 2**20
# Weights, gradients and Adam's two moments, all float32.
_BYTES_PER_PARAMETER = 4 * 4

LENGTHS = (512, 1024, 2048, 4096)
SEQUENCE_COUNTS = (8, 16, 32, 64, 128)
# Few blocks and many positions, to measure how attention grows with the length.
LONG_CHANGES = dict(vocab_size=1000, num_hidden_layers=2)


def run(names: list[str], start: Callable, config, workload: Workload, report: Report, lengths):
    """Adds three tables: a training step, tokens of real lengths, and long single sequences.

    `start` is a function (name, model directory) -> `Worker`: each measurement is in a new process.
    """
    with scratch_folder() as scratch:
        directory = _model(start, os.path.join(scratch, "model"), config)
        _step_table(names, start, directory, workload, report)
        _token_table(start, directory, report)
        long_config = {**config, **LONG_CHANGES, "max_position_embeddings": max(lengths)}
        directory = _model(start, os.path.join(scratch, "long_model"), long_config)
        _length_table(names, start, directory, lengths, report)


def _model(start, directory, config) -> str:
    with contextlib.closing(start(OURS, directory)) as worker:
        models.make(worker, directory, config)
    return directory


def _step_table(names, start, directory, workload, report):
    rows = []
    for name in names:
        step = _step(name, start, directory, workload, name, report)
        if step is not None:
            del step["ms"]
            rows.append({"peer": name, **step})
    ours = next((row["beyond MiB"] for row in rows if row["peer"] == OURS), None)
    for row in rows:
        row["times ours"] = None if ours is None else row["beyond MiB"] / ours
    title = f"Memory of a training step, {workload.describe()}: peak of {_STEPS} steps"
    report.add(Table(title, rows, bars="beyond MiB"))


def _step(name, start, directory, workload, where, report) -> dict[str, float] | None:
    """Returns the parts of a peer's peak memory in steps, and their time; None if it fails."""
    try:
        with contextlib.closing(start(name, directory)) as worker:
            variant = worker.variants("memory")[0]
            vocab_size = read_config(directory)["vocab_size"]
            batches = workloads.batches(workload, None, vocab_size, training=True)
            key = worker.make("training", batches=batches, variant=variant)
            # The first step creates the optimizer's slots and compiles, so it is not measured.
            worker.time(key, 1)
            worker.ask("reset_peak")
            seconds = worker.time(key, _STEPS)
            peak = worker.ask("peak_mib")
    except PeerFailed as failure:
        report.problem(f"memory, {where}: {failure}")
        return None
    fixed = models.parameters(directory) * _BYTES_PER_PARAMETER / _MIB
    return {
        "peak MiB": peak,
        "imports MiB": worker.imported_mib,
        "weights, gradients, slots MiB": fixed,
        "beyond MiB": peak - worker.imported_mib - fixed,
        "ms": 1e3 * statistics.median(seconds),
    }


def _length_table(names, start, directory, lengths, report):
    """Measures a step on one sequence of growing length; the memory per token must not grow."""
    rows = []
    for name in names:
        for length in lengths:
            where = f"{name}, length {length}"
            step = _step(name, start, directory, Workload.dense(1, length), where, report)
            if step is not None:
                row = {"peer": name, "length": length}
                row |= {column: step[column] for column in ("ms", "beyond MiB")}
                rows.append({**row, "KiB per token": 1024 * step["beyond MiB"] / length})
    layers = LONG_CHANGES["num_hidden_layers"]
    report.add(Table(f"Training step on one long sequence, {layers} layers", rows))


def _token_table(start, directory, report):
    """Measures bert_tf on growing numbers of sequences; the time per token must not grow."""
    config = read_config(directory)
    longest = min(workloads.RAGGED_LONGEST, config["max_position_embeddings"])
    tokens = {}
    with (
        contextlib.closing(start(OURS, directory)) as worker,
        Turns("memory, tokens", report) as turns,
    ):
        for count in SEQUENCE_COUNTS:
            workload = Workload.ragged(count, longest)
            batches = workloads.batches(workload, None, config["vocab_size"])
            turns.add(count, worker, "inference", 2, None, batches=batches, variant="graph")
            tokens[count] = workload.tokens
        rows = [
            {
                "sequences": count,
                "tokens": tokens[count],
                "ms": 1e3 * statistics.median(values),
                "µs per token": Spread.of([1e6 * value / tokens[count] for value in values]),
            }
            for count, values in turns.seconds().items()
        ]
        title = f"Inference of {OURS} on real lengths; {report.options.rounds} rounds"
        report.add(Table(title, rows))
