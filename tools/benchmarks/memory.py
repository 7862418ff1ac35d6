"""Measures the memory of a training step, and how time and memory grow with the length."""

import contextlib
import functools
import os
import statistics

from . import models, workloads
from .peers import OURS
from .peers.base import read_config
from .report import Report, Table
from .timing import Spread, interleave
from .turns import Options
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


def run(
    names: list[str],
    start,
    config: dict,
    workload: Workload,
    options: Options,
    report: Report,
    lengths: list[int],
):
    """Adds three tables: a training step, tokens of real lengths, and long single sequences.

    `start` is a function (name, model directory) -> `Worker`: every measurement of memory gets a
    new process.
    """
    with scratch_folder() as scratch:
        directory = _model(start, scratch, "model", config)
        _step_table(names, start, directory, workload, report)
        try:
            _token_table(start, directory, options, report)
        except PeerFailed as failure:
            report.problem(f"memory, tokens: {failure}")
        long_config = {**config, **LONG_CHANGES, "max_position_embeddings": max(lengths)}
        long_model = _model(start, scratch, "long_model", long_config)
        _length_table(names, start, long_model, lengths, report)


def _model(start, scratch, name, config) -> str:
    directory = os.path.join(scratch, name)
    with contextlib.closing(start(OURS, directory)) as worker:
        models.make(worker, directory, config)
    return directory


def _step_table(names, start, directory, workload, report):
    rows, ours = [], None
    for name in names:
        try:
            step = _step(name, start, directory, workload)
        except PeerFailed as failure:
            report.problem(f"memory, {name}: {failure}")
            continue
        del step["ms"]
        beyond = step["beyond MiB"]
        ours = beyond if name == OURS else ours
        times_ours = None if ours is None else beyond / ours
        rows.append({"peer": name, **step, "times ours": times_ours})
    title = f"Memory of a training step, {workload.describe()}: peak of {_STEPS} steps"
    report.add(Table(title, rows, bars="beyond MiB"))


def _step(name, start, directory, workload) -> dict[str, float]:
    """Measures steps of a peer in a new process: the parts of its peak memory, and the time."""
    with contextlib.closing(start(name, directory)) as worker:
        variant = worker.variants("memory")[0]
        config = read_config(directory)
        batches = workloads.batches(workload, None, config["vocab_size"], training=True)
        key = worker.make("training", batches=batches, variant=variant)
        # The first step creates the optimizer's slots and compiles, so it is not measured.
        worker.time(key, 1)
        worker.ask("reset_peak")
        seconds = worker.time(key, _STEPS)
        peak = worker.ask("peak_mib")
    fixed = models.parameters(directory) * _BYTES_PER_PARAMETER / _MIB
    return {
        "peak MiB": peak,
        "imports MiB": worker.imported_mib,
        "weights, gradients, slots MiB": fixed,
        "beyond MiB": peak - worker.imported_mib - fixed,
        "ms": 1e3 * statistics.median(seconds),
    }


def _length_table(names, start, directory, lengths, report):
    """Measures a step on one sequence of growing length T.

    Attention computes T² scores, so the time per token grows with T; the memory per token must not.
    """
    rows = []
    for name in names:
        for length in lengths:
            try:
                step = _step(name, start, directory, Workload.dense(1, length))
            except PeerFailed as failure:
                report.problem(f"memory, {name}, length {length}: {failure}")
                continue
            beyond = step["beyond MiB"]
            rows.append(
                {
                    "peer": name,
                    "length": length,
                    "ms": step["ms"],
                    "beyond MiB": beyond,
                    "KiB per token": 1024 * beyond / length,
                }
            )
    layers = LONG_CHANGES["num_hidden_layers"]
    report.add(Table(f"Training step on one long sequence, {layers} layers", rows))


def _token_table(start, directory, options, report):
    """Measures bert_tf on growing numbers of sequences; the time per token must not grow."""
    config = read_config(directory)
    longest = min(workloads.RAGGED_LONGEST, config["max_position_embeddings"])
    turns, tokens = {}, {}
    with contextlib.closing(start(OURS, directory)) as worker:
        for count in SEQUENCE_COUNTS:
            workload = Workload.ragged(count, longest)
            batches = workloads.batches(workload, None, config["vocab_size"])
            key = worker.make("inference", batches=batches, variant="graph")
            worker.warm_up(key)
            tokens[count] = workload.tokens
            turns[count] = functools.partial(worker.turn, key, options.turn_seconds)
        seconds = interleave(turns, options.rounds, options.progress)
    rows = [
        {
            "sequences": count,
            "tokens": tokens[count],
            "ms": 1e3 * statistics.median(seconds[count]),
            "µs per token": Spread.of([1e6 * value / tokens[count] for value in seconds[count]]),
        }
        for count in SEQUENCE_COUNTS
    ]
    report.add(Table(f"Inference of {OURS} on real lengths; {options.rounds} rounds", rows))
