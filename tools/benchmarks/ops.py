"""Compares the fused ops with their reference implementation, torch.compile, and a copy.

The copy moves as many bytes as the op. "in place" is a chain of the op in one graph, in which each
op overwrites its input buffer, as in the model. "fresh" is one call with outputs in new memory,
page faults included. torch.compile writes to a given buffer ("out buffer") or allocates its output
("fresh").
"""

import dataclasses
import statistics

import numpy as np

from . import limits
from .contest import LARGEST_DIFFERENCE, Options
from .peers import OURS
from .peers.op_cases import OpCase
from .report import Report, Table
from .timing import interleave, ratio
from .workers import PeerFailed

# A BERT-base feed-forward and hidden tensor for 4,096 and for 1,024 tokens.
FUSED_SHAPES = {
    "fused_bias_gelu": ((4096, 3072), (1024, 3072)),
    "fused_residual_layer_norm": ((4096, 768), (1024, 768)),
}
# (Number of sequences, length), with 12 heads of size 64.
ATTENTION_SHAPES = ((64, 30), (8, 128), (1, 384), (8, 512))

NAMES = (*FUSED_SHAPES, "varlen_attention")

_OURS_VARIANTS = ("native, in place", "native, fresh", "reference, fresh")


def run(workers, options: Options, report: Report, scale: int = 1, names=NAMES):
    """Adds a table for each op, direction and shape, and one for attention.

    Args:
        workers: The workers of bert_tf and the machine by name, and optionally torch_compile.
        options: Rounds and length of the measurements.
        report: The report to add the tables and the problems to.
        scale: The number of rows is divided by this.
        names: Some of `NAMES`.
    """
    for op, shapes in FUSED_SHAPES.items():
        for direction in ("forward", "backward") if op in names else ():
            for rows, width in shapes:
                case = OpCase(op, direction, rows // scale, width)
                try:
                    _fused(case, workers, options, report)
                except PeerFailed as failure:
                    report.problem(f"{case.name}: {failure}")
    if "varlen_attention" in names:
        try:
            _attention(workers, options, report, scale)
        except PeerFailed as failure:
            report.problem(f"varlen_attention: {failure}")


def _fused(case: OpCase, workers, options, report):
    contestants = [(OURS, variant) for variant in _OURS_VARIANTS]
    if "torch_compile" in workers:
        contestants += [
            ("torch_compile", variant) for variant in workers["torch_compile"].variants("ops")
        ]
    keys, expected = {}, None
    for name, variant in contestants:
        worker = workers[name]
        label = f"{name}, {variant}"
        key = worker.make("ops", case=dataclasses.asdict(case), variant=variant)
        if variant != "native, in place":  # a chain of ops has another result
            outputs = worker.outputs(key)
            expected = expected or outputs
            difference = _difference(expected, outputs)
            if difference > LARGEST_DIFFERENCE:
                report.problem(f"{case.name}: {label}: off by {difference:.2g}")
                worker.drop(key)
                continue
        worker.warm_up(key, 5)
        keys[label] = (worker, key)
    copy = limits.Copy(workers["machine"], case.bytes_moved, options.turn_seconds)
    turns = {label: _turn(worker, key, options) for label, (worker, key) in keys.items()}
    note = limits.busy_note()
    seconds = interleave({**turns, "copy": copy.turn}, options.rounds, options.progress)
    for worker, key in keys.values():
        worker.drop(key)
    copy.close()
    rows = []
    for label in (*keys, "copy"):
        median = statistics.median(seconds[label])
        rows.append(
            {
                "who": label,
                "ms": 1e3 * median,
                "times the copy": ratio(seconds[label], seconds["copy"]),
                "GB/s": case.bytes_moved / median / 1e9,
                "times ours": ratio(seconds[label], seconds[f"{OURS}, native, in place"]),
            }
        )
    report.add(Table(f"{case.name}; {options.rounds} rounds{note}", rows, bars="ms"))


def _attention(workers, options, report, scale):
    ours = workers[OURS]
    peak = limits.MatmulPeak(workers["machine"], options.turn_seconds)
    rows = []
    note = limits.busy_note()
    for sequences, length in ATTENTION_SHAPES:
        for direction in ("forward", "backward"):
            tokens = sequences * max(1, length // scale)
            case = OpCase("varlen_attention", direction, tokens, 768, sequences)
            keys = {}
            for backend in ("native", "reference"):
                key = ours.make("ops", case=dataclasses.asdict(case), variant=f"{backend}, fresh")
                keys[backend] = key
            difference = _difference(ours.outputs(keys["native"]), ours.outputs(keys["reference"]))
            if difference > LARGEST_DIFFERENCE:
                report.problem(f"{case.name}: native and reference differ by {difference:.2g}")
            turns = {}
            for backend, key in keys.items():
                ours.warm_up(key, 3)
                turns[backend] = _turn(ours, key, options)
            seconds = interleave({**turns, "peak": peak.turn}, options.rounds, options.progress)
            for key in keys.values():
                ours.drop(key)
            native = statistics.median(seconds["native"])
            rate = case.attention_flops / native
            rows.append(
                {
                    "sequences": f"{sequences} x {tokens // sequences}",
                    "direction": "forward" if direction == "forward" else "forward + backward",
                    "ms": 1e3 * native,
                    "GFLOP/s": rate / 1e9,
                    "share of matmul peak": rate * statistics.median(seconds["peak"]) / peak.flops,
                    "reference, times ours": ratio(seconds["reference"], seconds["native"]),
                }
            )
    report.add(Table(f"varlen_attention, 12 heads of 64; {options.rounds} rounds{note}", rows))


def _turn(worker, key, options):
    return lambda: worker.turn(key, options.turn_seconds)


def _difference(expected, outputs) -> float:
    """Returns the largest difference, relative to max(1, the largest value) of each output."""
    return max(
        float(np.max(np.abs(outputs[name] - value)) / max(1.0, float(np.max(np.abs(value)))))
        for name, value in expected.items()
    )
