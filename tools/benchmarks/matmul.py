"""Compares the matmul of `fused_dense` with other libraries and the limits of the machine.

With 16 rows or more, the limit is arithmetic: multiply-adds in registers. With one row, the limit
is reading the weights, so the rate is in GB/s and the limit is a plain read of as many bytes. The
same matmul is timed many times, so a kernel that fits in the last-level cache is read from there,
by all peers and by the plain read. In 8-bit integers, `quantized_dense` is compared with the limits
only.
"""

import statistics

from .limits import Limit, busy_note
from .peers import OURS
from .report import Report, Table
from .timing import ratio
from .turns import Options, Turns

# (K, N) of query-key-value, attention output, and the two of the feed-forward.
MODELS = {
    "base": ((768, 2304), (768, 768), (768, 3072), (3072, 768)),
    "large": ((1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024)),
    "minilm": ((384, 1152), (384, 384), (384, 1536), (1536, 384)),
}
ROWS = (1, 16, 128, 1024, 4096)

_JOBS = {"float32": "matmul", "int8": "matmul_int8"}
_WEIGHT_BYTES = {"float32": 4, "int8": 1}


def run(workers, models, rows_list, options: Options, report: Report, dtype: str):
    """Adds one table per model of `MODELS`, for "float32" or "int8"."""
    note = busy_note()
    machine, turn_seconds = workers["machine"], options.turn_seconds
    multiply_adds = Limit(machine, turn_seconds, "multiply_adds", dtype=dtype)
    for model in models:
        table_rows = []
        for depth, units in MODELS[model]:
            weight_bytes = _WEIGHT_BYTES[dtype] * depth * units
            read = Limit(machine, turn_seconds, "read", numbers=weight_bytes // 4)
            for rows in rows_list:
                limit = read if rows == 1 else multiply_adds
                shape = (rows, depth, units)
                with Turns(f"matmul {rows} x {depth} x {units}", options, report) as turns:
                    turns.add_all(workers, _JOBS[dtype], 1, shape=shape)
                    table_rows.append(_row(dtype, shape, turns, limit))
            read.close()
        title = (
            f"Matmuls of {model}, [M, K] x [K, N] + bias, {dtype}: 10^9 operations/s, "
            f"or GB/s of weights where M = 1; {options.rounds} rounds{note}"
        )
        report.add(Table(title, table_rows))
    multiply_adds.close()


def _row(dtype, shape, turns, limit) -> dict:
    rows, depth, units = shape
    seconds = turns.seconds(limit=limit.turn)
    # With one row the bytes of the weights count; otherwise the operations.
    work = _WEIGHT_BYTES[dtype] * depth * units if rows == 1 else 2 * rows * depth * units
    rates = {
        label: (limit.amount if label == "limit" else work) / statistics.median(values) / 1e9
        for label, values in seconds.items()
    }
    row = {"M": rows, "K": depth, "N": units, "limit": rates.pop("limit"), **rates}
    row["share of the limit"] = ratio(
        [work * value / limit.amount for value in seconds["limit"]], seconds[OURS]
    )
    others = [rate for label, rate in rates.items() if not label.startswith(OURS)]
    if others:
        row["times the best other"] = rates[OURS] / max(others)
    return row
