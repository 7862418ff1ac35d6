"""Measures inference on dense batches and on sequences of real lengths."""

from .contest import Contest, Options
from .report import Report
from .workloads import Workload

WORKLOADS = ("1x128", "8x128", "1x384", "8x512", "ragged")


def run(
    workers,
    config: dict,
    workload_list: list[Workload],
    options: Options,
    report: Report,
    job: str = "inference",
):
    """Adds one table per workload; see `Contest`."""
    for workload in workload_list:
        Contest(job, workload, workers, config, options, report).run()
