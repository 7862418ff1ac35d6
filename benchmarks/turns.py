"""Compares the outputs of several peers and measures the peers in turn."""

import contextlib
import functools
from collections.abc import Callable

import numpy as np

from .peers import OURS
from .report import Report
from .timing import interleave
from .workers import PeerFailed

# In float32, with twelve layers and sums in different orders, correct peers agree to about 1e-5.
TOLERANCE = 1e-3
# In other dtypes each peer rounds differently, so the relative error against float32 is compared.
LARGEST_ERRORS = {"bfloat16": 0.1, "int8": 0.25}


def largest_difference(expected, outputs) -> float:
    # Unlike max, np.max keeps NaN.
    return float(np.max([np.max(np.abs(outputs[name] - expected[name])) for name in expected]))


def relative_error(expected, outputs) -> float:
    """Returns the root mean square of the error divided by that of the output; the largest one."""
    errors = []
    for name, value in expected.items():
        value = np.asarray(value, np.float64)
        error, size = np.linalg.norm(outputs[name] - value), np.linalg.norm(value)
        errors.append(error / size if size else error)
    return float(np.max(errors))


def ours_first(workers) -> list[str]:
    """Returns the names of the peers, bert_tf first, without the machine."""
    return sorted(set(workers) - {"machine"}, key=lambda name: (name != OURS, name))


class Turns(contextlib.AbstractContextManager):
    """The tasks of one table, which are dropped at the end of the `with` block.

    If a peer fails, that is a problem of the report and ends the block. `where` names the table in
    problems; `differences` are those of the tasks from the first one, or from `expected`, by their
    labels.
    """

    def __init__(self, where: str, report: Report, expected: dict[str, np.ndarray] | None = None):
        self._where = where
        self._report = report
        self._tasks = {}
        self._expected = expected
        self.differences = {}

    def __exit__(self, kind, error, traceback):
        for worker, key in self._tasks.values():
            with contextlib.suppress(PeerFailed):  # its process has ended
                worker.drop(key)
        if isinstance(error, PeerFailed):
            self._report.problem(f"{self._where}: {error}")
        return isinstance(error, PeerFailed)

    def hold(self, label, worker, key) -> None:
        """Adds a task that is prepared and warm."""
        self._tasks[label] = worker, key

    def add(
        self, label, worker, job, calls, difference=largest_difference, most=TOLERANCE, **arguments
    ) -> None:
        """Prepares a job, compares its outputs with the expected ones, and warms it up.

        A task with a `difference` of more than `most` is a problem and is not measured; None: the
        outputs need not be equal. `calls` is the number of calls of the warm-up.
        """
        key = worker.make(job, **arguments)
        if difference is not None:
            outputs = worker.outputs(key)
            self._expected = outputs if self._expected is None else self._expected
            off = self.differences[label] = difference(self._expected, outputs)
            if not off <= most:
                worker.drop(key)
                self._report.problem(f"{self._where}, {label}: off by {off:.2g}")
                return
        worker.warm_up(key, calls)
        self.hold(label, worker, key)

    def add_all(self, workers, job, calls, **arguments) -> None:
        """Adds all variants of all peers, bert_tf first; another peer that fails is left out."""
        for name in ours_first(workers):
            try:
                for variant in workers[name].variants(job):
                    label = name if variant == "default" else f"{name}, {variant}"
                    self.add(label, workers[name], job, calls, variant=variant, **arguments)
            except PeerFailed as failure:
                if name == OURS:
                    raise
                self._report.problem(f"{self._where}: {failure}")

    def seconds(
        self, clock: str = "perf_counter", **others: Callable[[], float]
    ) -> dict[str, list[float]]:
        """Measures all tasks, and `others` by their functions: lists with one value per round."""
        options = self._report.options
        turns = {
            label: functools.partial(worker.turn, key, options.turn_seconds, clock)
            for label, (worker, key) in self._tasks.items()
        }
        return interleave(turns | others, options.rounds, options.progress)
