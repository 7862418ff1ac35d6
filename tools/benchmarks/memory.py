"""Measures the memory of a training step, and how time and memory grow with the length."""

import os
import statistics

from . import models, workloads
from .contest import Options
from .peers import OURS
from .report import Report, Table
from .timing import Spread, interleave
from .workers import PeerFailed, Worker, scratch_folder
from .workloads import Workload

_STEPS = 3  # allocators reach their peak in the second step
_MIB = 2**20
# Weights, gradients and Adam's two moments, all float32.
_BYTES_PER_PARAMETER = 4 * 4

LENGTHS = (512, 1024, 2048, 4096)
SEQUENCE_COUNTS = (8, 16, 32, 64, 128)
# Few blocks and many positions, to measure how attention grows with the length.
LONG_CHANGES = dict(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=4096)


def run(
    names: list[str],
    start,
    config: dict,
    workload: Workload,
    options: Options,
    report: Report,
    lengths=LENGTHS,
):
    """Adds three tables: a training step, tokens of real lengths, and long single sequences.

    Args:
        names: bert_tf and the peers to compare with.
        start: A function (name, model directory, scratch) -> `Worker`. Every measurement of memory
            gets a new process.
        config: The arguments of `BertConfig`.
        workload: The batch of the training step.
        options: Rounds and length of the timed measurements.
        report: The report to add the tables and the problems to.
        lengths: The lengths of the single sequences.
    """
    with scratch_folder() as scratch:
        directory = _model(start, scratch, "model", config)
        _step_table(names, start, directory, scratch, workload, report)
        try:
            _token_table(start, directory, scratch, options, report)
        except PeerFailed as failure:
            report.problem(f"memory, tokens: {failure}")
        changes = {**LONG_CHANGES, "max_position_embeddings": max(lengths)}
        long_model = _model(start, scratch, "long_model", {**config, **changes})
        _length_table(names, start, long_model, scratch, lengths, report)


def _model(start, scratch, name, config) -> str:
    directory = os.path.join(scratch, name)
    worker = start(OURS, directory, scratch)
    try:
        models.make(worker, directory, config)
    finally:
        worker.close()
    return directory


def _step_table(names, start, directory, scratch, workload, report):
    fixed = models.parameters(directory) * _BYTES_PER_PARAMETER / _MIB
    rows, beyond = [], {}
    for name in names:
        try:
            worker = start(name, directory, scratch)
            try:
                measured = _step(worker, directory, workload)
            finally:
                worker.close()
        except PeerFailed as failure:
            report.problem(f"memory, {name}: {failure}")
            continue
        beyond[name] = measured["peak_mib"] - worker.imported_mib - fixed
        rows.append(
            {
                "peer": name,
                "peak MiB": measured["peak_mib"],
                "imports MiB": worker.imported_mib,
                "weights, gradients, slots MiB": fixed,
                "beyond MiB": beyond[name],
                "times ours": beyond[name] / beyond[OURS] if OURS in beyond else None,
            }
        )
    title = f"Memory of a training step, {workload.describe()}: peak of {_STEPS} steps"
    report.add(Table(title, rows, bars="beyond MiB"))


def _step(worker: Worker, directory, workload) -> dict[str, float]:
    """Runs steps in a new process and returns the memory before them, the peak and the time."""
    variant = worker.variants("memory")[0]
    config = models.read_config(directory)
    batches = workloads.batches(workload, None, config["vocab_size"], training=True)
    key = worker.make("training", batches=batches, variant=variant)
    # The first step creates the optimizer's slots and compiles, so it is not measured.
    seconds = worker.time(key, 1)
    before = worker.memory(reset=True)["current_mib"]
    seconds = worker.time(key, _STEPS)
    return {
        "before_mib": before,
        "peak_mib": worker.memory()["peak_mib"],
        "seconds": statistics.median(seconds),
    }


def _length_table(names, start, directory, scratch, lengths, report):
    """Measures a step on one sequence of growing length T.

    Attention computes T² scores, so the time per token grows with T; the memory per token must not.
    """
    rows = []
    for name in names:
        for length in lengths:
            try:
                worker = start(name, directory, scratch)
                try:
                    measured = _step(worker, directory, Workload.dense(1, length))
                finally:
                    worker.close()
            except PeerFailed as failure:
                report.problem(f"memory, {name}, length {length}: {failure}")
                continue
            fixed = models.parameters(directory) * _BYTES_PER_PARAMETER / _MIB
            growth = measured["peak_mib"] - worker.imported_mib - fixed
            rows.append(
                {
                    "peer": name,
                    "length": length,
                    "ms": 1e3 * measured["seconds"],
                    "beyond MiB": growth,
                    "KiB per token": 1024 * growth / length,
                }
            )
    layers = LONG_CHANGES["num_hidden_layers"]
    report.add(Table(f"Training step on one long sequence, {layers} layers", rows))


def _token_table(start, directory, scratch, options, report):
    """Measures bert_tf on growing numbers of sequences; the time per token must not grow."""
    worker = start(OURS, directory, scratch)
    config = models.read_config(directory)
    try:
        turns, tokens = {}, {}
        for count in SEQUENCE_COUNTS:
            workload = Workload.ragged(
                count, min(workloads.RAGGED_LONGEST, config["max_position_embeddings"])
            )
            batches = workloads.batches(workload, None, config["vocab_size"])
            key = worker.make("inference", batches=batches, variant="graph")
            worker.warm_up(key)
            tokens[count] = workload.tokens
            turns[count] = lambda key=key: worker.turn(key, options.turn_seconds)
        seconds = interleave(turns, options.rounds, options.progress)
    finally:
        worker.close()
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
