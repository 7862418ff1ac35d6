"""Compares the matmul of `fused_dense` with other libraries and the limits of the machine.

With 16 rows or more, the limit is arithmetic: multiply-adds in registers. With one row, it is a
plain read of as many bytes as the weights, in GB/s. The same matmul is timed many times, so weights
that fit in the last-level cache are read from there, as in the plain read. In 8-bit integers,
`quantized_dense` is compared with the limits only. In bfloat16, x and the result of `fused_dense`
are float32, and those of the others bfloat16.
"""

import statistics

from .limits import Limit, busy_note
from .peers import OURS
from .report import Report, Table
from .timing import ratio
from .turns import LARGEST_ERRORS, Turns, relative_error

# (K, N) of query-key-value, attention output, and the two of the feed-forward.
MODELS = {
    "base": ((768, 2304), (768, 768), (768, 3072), (3072, 768)),
    "large": ((1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024)),
    "minilm": ((384, 1152), (384, 384), (384, 1536), (1536, 384)),
}
ROWS = (1, 16, 128, 1024, 4096)

_WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


def run(workers, job: str, models, rows_list, report: Report, dtype: str):
    """Adds one table per model of `MODELS`, for a dtype of `_WEIGHT_BYTES`."""
    note = busy_note()
    machine, turn_seconds = workers["machine"], report.options.turn_seconds
    is_rounded = dtype in LARGEST_ERRORS
    errors = {"difference": relative_error, "most": LARGEST_ERRORS[dtype]} if is_rounded else {}
    multiply_adds = Limit(machine, turn_seconds, "multiply_adds", dtype=dtype)
    for model in models:
        table_rows = []
        for depth, units in MODELS[model]:
            weight_bytes = _WEIGHT_BYTES[dtype] * depth * units
            read = Limit(machine, turn_seconds, "read", numbers=weight_bytes // 4)
            for rows in rows_list:
                limit, work = multiply_adds, 2 * rows * depth * units
                if rows == 1:
                    limit, work = read, weight_bytes
                with Turns(f"matmul {rows} x {depth} x {units}", report) as turns:
                    turns.add_all(workers, job, 1, shape=(rows, depth, units), **errors)
                    row = {"M": rows, "K": depth, "N": units, **_rates(turns, limit, work)}
                    table_rows.append(row)
            read.close()
        title = (
            f"Matmuls of {model}, [M, K] x [K, N] + bias, {dtype}: 10^9 operations/s, "
            f"or GB/s of weights where M = 1; {report.options.rounds} rounds{note}"
        )
        report.add(Table(title, table_rows))


def _rates(turns, limit, work) -> dict:
    seconds = turns.seconds(limit=limit.turn)
    shortest = [work * value / limit.amount for value in seconds.pop("limit")]
    rates = {label: work / statistics.median(values) / 1e9 for label, values in seconds.items()}
    columns = {
        "limit": work / statistics.median(shortest) / 1e9,
        **rates,
        "share of the limit": ratio(shortest, seconds[OURS]),
    }
    others = [rate for label, rate in rates.items() if not label.startswith(OURS)]
    if others:
        columns["times the best other"] = rates[OURS] / max(others)
    return columns
