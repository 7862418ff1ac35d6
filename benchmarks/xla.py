"""Compares bert_tf with and without XLA, in inference and in the pre-training step."""

import statistics

from . import limits, workloads
from .peers import NO_XLA, XLA_VARIANTS
from .report import Report, Table
from .timing import ratio
from .turns import Turns, largest_difference
from .workers import Worker
from .workloads import Workload

WORKLOADS = ("1x128", "8x128")


def run(worker: Worker, config: dict, workload_list: list[Workload], report: Report):
    """Adds a table for each job and workload; `worker` is that of the peer `bert_tf_xla`."""
    for workload in workload_list:

        def difference(*outputs, workload=workload):
            return largest_difference(
                *(workloads.comparable(values, workload, None) for values in outputs)
            )

        for job in ("inference", "training"):
            print(f"\nxla, {job}, {workload.describe()}", flush=True)
            batches = workloads.batches(workload, None, config["vocab_size"], job == "training")
            with Turns(f"xla, {job}, {workload.name}", report) as turns:
                for variant in XLA_VARIANTS:
                    arguments = {"batches": batches, "variant": variant}
                    calls = report.options.search_calls
                    turns.add(variant, worker, f"xla_{job}", calls, difference, **arguments)
                note = limits.busy_note()
                seconds = turns.seconds()
                rows = [
                    {
                        "arrangement": variant,
                        "ms": 1e3 * statistics.median(values),
                        "times without XLA": ratio(values, seconds[NO_XLA]),
                    }
                    for variant, values in seconds.items()
                ]
                title = f"XLA, {job}, {workload.describe()}; {report.options.rounds} rounds{note}"
                report.add(Table(title, rows, bars="ms"))
