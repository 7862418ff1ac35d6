"""The pre-training step: MLM and NSP, dropout 0.1, AdamW, global clip 1.0.

All do one optimizer step on the same sequences. On real lengths the peers sort them into batches of
similar length and add up the gradients; ours takes them in one batch, in any order. The learning
rate is 0 (`peers.base.LEARNING_RATE`).
"""

from .contest import Contest, Options
from .report import Report
from .workloads import Workload

WORKLOADS = ("8x128", "ragged")


def run(workers, config: dict, workload_list: list[Workload], options: Options, report: Report):
    """A table a workload; see `Contest`."""
    for workload in workload_list:
        Contest("training", workload, workers, config, options, report).run()
