"""Compares bert_tf with and without XLA, in inference and in the pre-training step."""

import statistics

import numpy as np

from . import limits, workloads
from .contest import LARGEST_DIFFERENCE, Options
from .peers.xla_variants import NATIVE, VARIANTS
from .report import Report, Table
from .timing import interleave, ratio
from .workers import PeerFailed, Worker
from .workloads import Workload

WORKLOADS = ("1x128", "8x128")


def run(
    worker: Worker, config: dict, workload_list: list[Workload], options: Options, report: Report
):
    """Adds a table for each job and workload.

    Args:
        worker: The worker of the peer `bert_tf_xla`.
        config: The configuration of the model.
        workload_list: The sequences, which are padded to one length under XLA.
        options: Rounds and length of the measurements.
        report: The report to add the tables and the problems to.
    """
    for workload in workload_list:
        for job in ("inference", "training"):
            try:
                report.add(_table(job, workload, worker, config, options, report))
            except PeerFailed as failure:
                report.problem(f"xla, {job}, {workload.name}: {failure}")


def _table(job, workload, worker, config, options, report) -> Table:
    print(f"\nxla, {job}, {workload.describe()}", flush=True)
    batches = workloads.batches(workload, None, config["vocab_size"], job == "training")
    turns, keys, expected = {}, [], None
    for variant in VARIANTS:
        key = worker.make(f"xla_{job}", batches=batches, variant=variant)
        keys.append(key)
        outputs = _comparable(worker.outputs(key), workload)
        expected = outputs if expected is None else expected
        difference = max(float(np.max(np.abs(outputs[name] - expected[name]))) for name in expected)
        if not difference <= LARGEST_DIFFERENCE:
            report.problem(f"xla, {job}, {workload.name}, {variant}: off by {difference:.2g}")
            continue
        worker.warm_up(key, options.search_calls)
        turns[variant] = _turn(worker, key, options)
    note = limits.busy_note()
    seconds = interleave(turns, options.rounds, options.progress)
    for key in keys:
        worker.drop(key)
    rows = [
        {
            "arrangement": variant,
            "ms": 1e3 * statistics.median(seconds[variant]),
            "times without XLA": ratio(seconds[variant], seconds[NATIVE]),
        }
        for variant in turns
    ]
    title = f"XLA, {job}, {workload.describe()}; {options.rounds} rounds{note}"
    return Table(title, rows, bars="ms")


def _comparable(outputs, workload):
    """Returns the loss, or the outputs at real tokens."""
    if "loss" in outputs:
        return outputs
    rows = workloads.real_rows([outputs["0/sequence_output"]], workload, None)
    return {"sequence_output": rows, "pooled_output": outputs["0/pooled_output"]}


def _turn(worker, key, options):
    return lambda: worker.turn(key, options.turn_seconds)
