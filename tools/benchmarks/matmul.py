"""Compares the matmul of `fused_dense` with other libraries and the limits of the machine.

With 16 rows or more, the limit is arithmetic: multiply-adds in registers. With one row, the limit
is reading the weights, so the rate is in GB/s and the limit is a plain read of as many bytes. The
same matmul is timed many times, so a kernel that fits in the last-level cache is read from there,
by all peers and by the plain read. In 8-bit integers, `quantized_dense` is compared with the limits
only.
"""

import statistics

import numpy as np

from . import limits
from .contest import LARGEST_DIFFERENCE, Options
from .peers import OURS
from .report import Report, Table
from .timing import interleave, ratio
from .workers import PeerFailed

# (K, N) of query-key-value, attention output, and the two of the feed-forward.
MODELS = {
    "base": ((768, 2304), (768, 768), (768, 3072), (3072, 768)),
    "large": ((1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024)),
    "minilm": ((384, 1152), (384, 384), (384, 1536), (1536, 384)),
}
ROWS = (1, 16, 128, 1024, 4096)

_WEIGHT_BYTES = {"matmul": 4, "matmul_int8": 1}
_MULTIPLY_ADDS = {"matmul": "multiply_adds", "matmul_int8": "multiply_adds_int8"}
_DTYPES = {"matmul": "float32", "matmul_int8": "int8"}
_LIMIT = "limit"


def run(workers, models, rows_list, options: Options, report: Report, job: str = "matmul"):
    """Adds one table per model.

    Args:
        workers: The workers by name, with those of bert_tf and the machine.
        models: Keys of `MODELS`.
        rows_list: The numbers of rows, M.
        options: Rounds and length of the measurements.
        report: The report to add the tables and the problems to.
        job: "matmul" or "matmul_int8".
    """
    note = limits.busy_note()
    machine = workers["machine"]
    multiply_adds = _Limit(machine, options, _MULTIPLY_ADDS[job])
    for model in models:
        table_rows = []
        for depth, units in MODELS[model]:
            weight_bytes = _WEIGHT_BYTES[job] * depth * units
            read = _Limit(machine, options, "read", numbers=weight_bytes // 4)
            for rows in rows_list:
                limit = read if rows == 1 else multiply_adds
                try:
                    table_rows.append(
                        _measured(job, (rows, depth, units), workers, limit, options, report)
                    )
                except PeerFailed as failure:
                    report.problem(f"matmul {rows} x {depth} x {units}: {failure}")
            read.close()
        title = (
            f"Matmuls of {model}, [M, K] x [K, N] + bias, {_DTYPES[job]}: 10^9 operations/s, "
            f"or GB/s of weights where M = 1; {options.rounds} rounds{note}"
        )
        report.add(Table(title, table_rows))
    multiply_adds.close()


class _Limit:
    """A limit of the machine, in operations or bytes per second."""

    def __init__(self, machine, options, job, **arguments):
        self._machine = machine
        self._key = machine.make(job, **arguments)
        self.amount = float(machine.outputs(self._key)["amount"])
        machine.warm_up(self._key, 1)
        self.turn = _turn(machine, self._key, options)

    def close(self):
        self._machine.drop(self._key)


def _measured(job, shape, workers, limit, options, report) -> dict:
    rows, depth, units = shape
    turns, keys, expected = {_LIMIT: limit.turn}, [], None
    for name in sorted(set(workers) - {"machine"}, key=lambda name: (name != OURS, name)):
        worker = workers[name]
        for variant in worker.variants(job):
            label = name if variant == "default" else f"{name}, {variant}"
            key = worker.make(job, shape=shape, variant=variant)
            keys.append((worker, key))
            product = worker.outputs(key)["y"]
            expected = product if expected is None else expected
            difference = float(np.max(np.abs(product - expected)))
            if not difference <= LARGEST_DIFFERENCE:
                report.problem(f"matmul {shape}: {label}: off by {difference:.2g}")
                continue
            worker.warm_up(key, 1)
            turns[label] = _turn(worker, key, options)
    seconds = interleave(turns, options.rounds, options.progress)
    for worker, key in keys:
        worker.drop(key)
    # With one row the bytes of the weights count; otherwise the operations.
    work = _WEIGHT_BYTES[job] * depth * units if rows == 1 else 2 * rows * depth * units
    rates = {
        label: (limit.amount if label == _LIMIT else work) / statistics.median(values) / 1e9
        for label, values in seconds.items()
    }
    others = {
        label: rate
        for label, rate in rates.items()
        if label != _LIMIT and not label.startswith(OURS)
    }
    row = {"M": rows, "K": depth, "N": units, **rates}
    row["share of the limit"] = ratio(
        [work * value / limit.amount for value in seconds[_LIMIT]], seconds[OURS]
    )
    if others:
        row["times the best other"] = rates[OURS] / max(others.values())
    return row


def _turn(worker, key, options):
    return lambda: worker.turn(key, options.turn_seconds)
