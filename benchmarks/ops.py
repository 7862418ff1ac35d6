"""Compares the fused ops with their reference implementation, torch.compile, and a copy.

The copy moves as many bytes as the op. "in place" is a chain of the op in one graph, in which each
op overwrites its input buffer, as in the model. "fresh" is one call with outputs in new memory,
page faults included. torch.compile writes to a given buffer ("out buffer") or allocates its output
("fresh").
"""

import contextlib
import statistics

import numpy as np

from . import limits
from .peers import OURS
from .peers.op_cases import OpCase
from .report import Report, Table
from .timing import ratio
from .turns import Turns

# A BERT-base feed-forward and hidden tensor for 4,096 and for 1,024 tokens.
FUSED_SHAPES = {
    "fused_bias_gelu": ((4096, 3072), (1024, 3072)),
    "fused_residual_layer_norm": ((4096, 768), (1024, 768)),
}
# (Number of sequences, length), with 12 heads of size 64.
ATTENTION_SHAPES = ((64, 30), (8, 128), (1, 384), (8, 512))

NAMES = (*FUSED_SHAPES, "varlen_attention")


def run(workers, report: Report, scale: int = 1, names=NAMES):
    """Adds a table for each op, direction and shape, of rows divided by `scale`, and for attention.

    The workers are those of bert_tf and the machine, and optionally torch_compile.
    """
    for op, shapes in FUSED_SHAPES.items():
        for direction in ("forward", "backward") if op in names else ():
            for rows, width in shapes:
                _fused(OpCase(op, direction, rows // scale, width), workers, report)
    if "varlen_attention" in names:
        _attention(workers, report, scale)


def _fused(case: OpCase, workers, report):
    with Turns(case.name, report) as turns:
        turns.add_all(workers, "ops", 5, difference=relative_difference, case=case)
        turns.add("copy", workers["machine"], "copy", 3, None, bytes_moved=case.bytes_moved)
        note = limits.busy_note()
        seconds = turns.seconds()
        rows = [
            {
                "who": label,
                "ms": 1e3 * statistics.median(values),
                "times the copy": ratio(values, seconds["copy"]),
                "GB/s": case.bytes_moved / statistics.median(values) / 1e9,
                "times ours": ratio(values, seconds[f"{OURS}, native, in place"]),
            }
            for label, values in seconds.items()
        ]
        report.add(Table(f"{case.name}; {report.options.rounds} rounds{note}", rows, bars="ms"))


def _attention(workers, report, scale):
    rows = []
    peak = limits.matmul_peak(workers["machine"], report.options.turn_seconds)
    with contextlib.closing(peak):
        note = limits.busy_note()
        for sequences, length in ATTENTION_SHAPES:
            for direction in ("forward", "backward"):
                tokens = sequences * max(1, length // scale)
                case = OpCase("varlen_attention", direction, tokens, 768, sequences)
                with Turns(case.name, report) as turns:
                    rows.append(_attention_row(case, turns, workers[OURS], peak))
        title = f"varlen_attention, 12 heads of 64; {report.options.rounds} rounds{note}"
        report.add(Table(title, rows))


def _attention_row(case, turns, worker, peak):
    for backend in ("native", "reference"):
        variant = f"{backend}, fresh"
        turns.add(backend, worker, "ops", 3, relative_difference, case=case, variant=variant)
    seconds = turns.seconds(peak=peak.turn)
    native = statistics.median(seconds["native"])
    rate = case.attention_flops / native
    return {
        "sequences": f"{case.sequences} x {case.rows // case.sequences}",
        "direction": "forward" if case.direction == "forward" else "forward + backward",
        "ms": 1e3 * native,
        "GFLOP/s": rate / 1e9,
        "share of matmul peak": rate * statistics.median(seconds["peak"]) / peak.amount,
        "reference, times ours": (
            ratio(seconds["reference"], seconds["native"]) if "reference" in seconds else None
        ),
    }


def relative_difference(expected, outputs) -> float:
    """Returns the largest difference, relative to max(1, the largest value) of each output."""
    differences = [
        np.max(np.abs(outputs[name] - value)) / max(1.0, float(np.max(np.abs(value))))
        for name, value in expected.items()
    ]
    return float(np.max(differences))  # unlike max, np.max keeps NaN
