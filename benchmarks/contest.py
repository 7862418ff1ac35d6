"""Measures one workload on all peers: finds the best variant of each, compares outputs, times.

The jobs are inference, on dense batches and on sequences of real lengths, and the pre-training
step: MLM and NSP, dropout 0.1, AdamW, gradients clipped to norm 1.0. Each peer makes one optimizer
step on the same sequences. The peers sort sequences of real lengths into batches of similar lengths
and add up the gradients; bert_tf uses a single batch in any order.

In bfloat16 and int8, outputs are compared with those of bert_tf in float32.
"""

import contextlib
import dataclasses
import statistics

import numpy as np

from . import limits, workloads
from .peers import BASELINE, OURS
from .report import Report, Table
from .timing import medians, ratio
from .turns import LARGEST_ERRORS, TOLERANCE, Turns, largest_difference, ours_first, relative_error
from .workers import PeerFailed, Worker
from .workloads import Workload

WORKLOADS = {
    "inference": ("1x128", "8x128", "1x384", "8x512", "ragged"),
    "training": ("8x128", "ragged"),
}


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """A prepared and checked way for a peer to run the workload: a variant and a bucket size."""

    key: int
    label: str
    seconds: float
    difference: float
    error: float


@dataclasses.dataclass
class Contest:
    """Measures "inference" or "training", or one of them in another dtype, on one workload.

    All peers must have the outputs `expected`, by default the first ones, those of bert_tf.
    """

    job: str
    workload: Workload
    workers: dict[str, Worker]
    config: dict
    report: Report
    expected: dict[str, np.ndarray] | None = None

    def run(self) -> None:
        """Searches, measures and adds the table to the report."""
        kind, _, dtype = self.job.partition("_")
        title = f"{kind.capitalize()} in {dtype or 'float32'}, {self.workload.describe()}"
        print(f"\n{title}", flush=True)
        if self._largest_error:
            key, self.expected = self._prepare(OURS, self._kind, None, "graph")
            self._forget(OURS, key)
        found = {name: self._search(name) for name in ours_first(self.workers)}
        best = {name: arrangement for name, arrangement in found.items() if arrangement}
        if OURS not in best:
            return  # the problem has been added to the report
        with Turns(self._where, self.report) as turns:
            for name, arrangement in best.items():
                turns.hold(name, self.workers[name], arrangement.key)
            peak = limits.matmul_peak(self.workers["machine"], self.report.options.turn_seconds)
            with contextlib.closing(peak):
                note = limits.busy_note()
                seconds = turns.seconds(machine=peak.turn)
            peak_flops = peak.amount / statistics.median(seconds.pop("machine"))
            rows = list(self._rows(best, seconds, peak_flops))
            title += f"; {self.report.options.rounds} rounds; float32 matmul peak "
            title += f"{peak_flops / 1e9:.0f} GFLOP/s{note}"
            self.report.add(Table(title, rows, bars="ms"))

    @property
    def _where(self):
        return f"{self.job}, {self.workload.name}"

    @property
    def _kind(self):
        """The job without its dtype."""
        return self.job.partition("_")[0]

    @property
    def _largest_error(self):
        """The largest relative error against float32; None: the job is in float32."""
        return LARGEST_ERRORS.get(self.job.partition("_")[2])

    def _prepare(self, name, job, bucket, variant):
        """Returns the key of a new task and its outputs in the order of the workload."""
        worker, is_training = self.workers[name], self._kind == "training"
        batches = workloads.batches(self.workload, bucket, self.config["vocab_size"], is_training)
        key = worker.make(job, batches=batches, variant=variant)
        return key, workloads.comparable(worker.outputs(key), self.workload, bucket)

    def _search(self, name) -> Arrangement | None:
        """Tries all arrangements of one peer, drops all but the fastest, and prints their times."""
        buckets, options = [None], self.report.options
        if self.workload.is_ragged and name not in (OURS, BASELINE):  # they have no padding
            sizes, count = options.buckets, len(self.workload.lengths)
            buckets = [size for size in sizes if size is None or size < count] or [None]
        fastest, tried = None, []
        for bucket in buckets:
            try:
                variants = self.workers[name].variants(self.job, bucket, self.workload.is_ragged)
                if name == OURS and options.variants:
                    variants = [one for one in variants if one in options.variants]
            except PeerFailed as failure:
                self.report.problem(f"{self._where}: {failure}")
                return None
            for variant in variants:
                found = self._try(name, bucket, variant)
                if found is None:
                    continue
                tried.append(f"{found.label}: {1e3 * found.seconds:.4g} ms")
                if fastest is None or found.seconds < fastest.seconds:
                    fastest, found = found, fastest
                if found is not None:
                    self._forget(name, found.key)
        print(f"  search {name}: {', '.join(tried) or 'nothing works'}", flush=True)
        return fastest

    def _try(self, name, bucket, variant) -> Arrangement | None:
        worker, options = self.workers[name], self.report.options
        label = f"{'one batch' if bucket is None else f'buckets of {bucket}'}, {variant}"
        where = f"{self._where}, {name} ({label})"
        try:
            key, outputs = self._prepare(name, self.job, bucket, variant)
            difference, error = self.difference(outputs)
            limit = self._largest_error
            if not (error <= limit if limit else difference <= TOLERANCE):
                self._forget(name, key)
                self.report.problem(
                    f"{where}: wrong outputs, off by {difference:.2g} (relative {error:.2g})"
                )
                return None
            seconds = worker.warm_up(key, options.search_calls)
            if seconds < options.turn_seconds:  # too short for a reliable time of few calls
                seconds = worker.turn(key, options.turn_seconds)
        except PeerFailed as failure:
            self.report.problem(f"{where}: {failure}")
            return None
        label = label if self.workload.is_ragged else variant
        return Arrangement(key, label, seconds, difference, error)

    def difference(self, outputs) -> tuple[float, float]:
        """Returns the largest difference from the expected outputs and the relative error."""
        if self.expected is None:
            self.expected = outputs
        return largest_difference(self.expected, outputs), relative_error(self.expected, outputs)

    def _forget(self, name, key):
        with contextlib.suppress(PeerFailed):  # its process has ended, which was reported
            self.workers[name].drop(key)

    def _rows(self, best, seconds, peak_flops):
        is_training = self._kind == "training"
        count_flops = workloads.training_flops if is_training else workloads.encoder_flops
        flops = count_flops(self.workload, self.config)
        for name, median in medians(seconds).items():
            row = {
                "peer": name,
                "arrangement": best[name].label,
                "ms": 1e3 * median,
                "times ours": ratio(seconds[name], seconds[OURS]),
                "tokens/s": self.workload.tokens / median,
                "share of matmul peak": flops / median / peak_flops,
                "largest difference": best[name].difference,
            }
            if self._largest_error:
                row["relative error"] = best[name].error
            yield row
