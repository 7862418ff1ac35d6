"""Measures the pre-training step: MLM and NSP, dropout 0.1, AdamW, gradients clipped to norm 1.0.

Each peer makes one optimizer step on the same sequences. For sequences of real lengths, the peers
sort them into batches of similar lengths and add up the gradients; bert_tf uses a single batch in
any order. The learning rate is 0 (`peers.base.LEARNING_RATE`).
"""

from .contest import Contest, Options
from .report import Report
from .workloads import Workload

WORKLOADS = ("8x128", "ragged")


def run(workers, config: dict, workload_list: list[Workload], options: Options, report: Report):
    """Adds one table per workload; see `Contest`."""
    for workload in workload_list:
        Contest("training", workload, workers, config, options, report).run()
