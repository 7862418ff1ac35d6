"""Measures how fast an encoder and decoder writes targets, greedily and by beam search.

All peers write the same number of tokens after the sources of one batch, with their caches of keys
and values. In float32 their ids must be equal. In bfloat16 near ties are decided differently, so
the table has the share of ids that differ from those of bert_tf in float32.
"""

import statistics

import numpy as np

from . import limits, workloads
from .peers import OURS
from .report import Report, Table
from .timing import Spread, medians, ratio
from .turns import Turns
from .workloads import Workload

WORKLOADS = ("8x64",)
BEAMS = (1, 4)
_WARM_UP_CALLS = 1
_MOST_DIFFERENT_IDS = {"generation": 0.0, "generation_bfloat16": 0.9}


def run(workers, job: str, config: dict, workload: Workload, new_tokens: int, report: Report):
    """Adds a table per decoding, and for "generation" one of the time per token."""
    (batch,) = workloads.batches(workload, None, config["vocab_size"])
    for num_beams in BEAMS:
        _decoding_table(workers, job, workload, batch, new_tokens, num_beams, report)
    if job == "generation":
        _token_table(workers[OURS], config, workload, batch, new_tokens, report)


def _decoding_table(workers, job, workload, batch, new_tokens, num_beams, report):
    how = "greedy" if num_beams == 1 else f"{num_beams} beams"
    where = f"{job}, {workload.name}, {how}"
    print(f"\n{where}", flush=True)
    arguments = {"batch": batch, "new_tokens": new_tokens, "num_beams": num_beams}
    expected = _float32_ids(workers[OURS], arguments) if job == "generation_bfloat16" else None
    with Turns(where, report, expected) as turns:
        most = _MOST_DIFFERENT_IDS[job]
        turns.add_all(
            workers, job, _WARM_UP_CALLS, difference=different_ids, most=most, **arguments
        )
        note = limits.busy_note()
        seconds = turns.seconds()
        fastest_first = medians(seconds)
        best = next(label for label in fastest_first if label.startswith(OURS))
        tokens = len(workload.lengths) * new_tokens
        rows = [
            {
                "peer": label,
                "ms": 1e3 * median,
                "times ours": ratio(seconds[label], seconds[best]),
                "new tokens/s": tokens / median,
                "different ids": turns.differences[label],
            }
            for label, median in fastest_first.items()
        ]
        dtype = job.partition("_")[2] or "float32"
        title = f"{workload.describe()}, {new_tokens} new tokens, {how}, {dtype}"
        report.add(Table(f"{title}; {report.options.rounds} rounds{note}", rows, "ms"))


def _float32_ids(worker, arguments) -> dict[str, np.ndarray]:
    key = worker.make("generation", variant="graph", **arguments)
    ids = worker.outputs(key)
    worker.drop(key)
    return ids


def _token_table(worker, config, workload, batch, new_tokens, report):
    """Measures bert_tf with several maximum lengths of a target, and with longer targets."""
    longest = config["max_position_embeddings"] - 1  # the start token has a position too
    maximum_lengths = (min(2 * new_tokens, longest), longest)
    counts = (new_tokens, min(4 * new_tokens, longest - 1))
    shapes = [(most, counts[0]) for most in maximum_lengths] + [(longest, counts[1])]
    with Turns("generation, per token", report) as turns:
        for shape in shapes:
            arguments = {"batch": batch, "num_beams": 1, "variant": "packed"}
            arguments |= {"max_target_length": shape[0] + 1, "new_tokens": shape[1]}
            turns.add(shape, worker, "generation", _WARM_UP_CALLS, None, **arguments)
        rows = [
            {
                "longest target": most,
                "new tokens": count,
                "ms": 1e3 * statistics.median(values),
                "ms per new token": Spread.of([1e3 * value / count for value in values]),
            }
            for (most, count), values in turns.seconds().items()
        ]
        title = f"{OURS}, {workload.describe()}, greedy, by the longest target that a model allows"
        report.add(Table(f"{title}; {report.options.rounds} rounds", rows))


def different_ids(expected, outputs) -> float:
    """Returns the share of the ids that differ; 1 for another number of ids."""
    if expected["ids"].shape != outputs["ids"].shape:
        return 1.0
    return float(np.mean(expected["ids"] != outputs["ids"]))
