"""Measures the pre-training step on pipeline stages: memory of each device, time, and idle share.

The devices are logical CPUs. They share the cores, so more stages than cores are not faster. The
idle share of a device is that of the time from the first operation of a stage to the last one,
without the optimizer. Next to it are the idle share that the same forward and backward passes would
have on as many cores as stages (a simulation of the schedule with their measured times), and the
formula (k - 1) / (m + k - 1) for k stages that take equally long and m parts.

Reference: Huang et al. 2019 (GPipe, arXiv 1811.06965), section 2.3.
"""

import contextlib
import os
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from . import limits, workloads
from .peers import OURS_PIPELINE
from .peers.base import STAGES
from .report import Report, Table
from .timing import Spread, ratio
from .turns import Turns
from .workers import PeerFailed
from .workloads import Workload

WORKLOADS = ("16x128",)
STAGE_COUNTS = (1, 2, 4)
PART_COUNTS = (1, 2, 4, 8)

# Large tensors go back to the system as soon as they are free, so the memory of the process shows
# what is kept.
_EXACT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}


def run(
    start: Callable,
    config: dict,
    workload: Workload,
    report: Report,
    stage_counts: Sequence[int] = STAGE_COUNTS,
    part_counts: Sequence[int] = PART_COUNTS,
) -> None:
    """Adds two tables: the memory of each device, and the time of a step.

    `start` is a function (peer, model directory, environment) -> `Worker`: every number of stages
    has its own process, with one thread per device.
    """
    arguments = {"config": config}
    arguments["batches"] = workloads.batches(workload, None, config["vocab_size"], training=True)
    _memory_table(start, arguments, workload, report, stage_counts, part_counts)
    rows = []
    for parts in part_counts:
        rows += _step_rows(start, {**arguments, "parts": parts}, report, stage_counts, parts)
    cores = os.cpu_count()
    title = (
        f"Pipeline stages: a pre-training step, {workload.describe()}; one thread per device on "
        f"{cores} cores, so no more than {cores} stages can compute at the same time; "
        f"{report.options.rounds} rounds{limits.busy_note()}"
    )
    report.add(Table(title, rows))


def _worker(start, stages, environment):
    variables = {STAGES: str(stages), **environment}
    return contextlib.closing(start(OURS_PIPELINE, "", environment=variables, threads=1))


def _memory_table(start, arguments, workload, report, stage_counts, part_counts):
    """Makes the table of memory; a part has the whole batch's activations / the number of parts."""
    parts = max(part_counts)
    rows = []
    for stages in stage_counts:
        try:
            with _worker(start, stages, _EXACT_MEMORY) as worker:
                found = worker.outputs(worker.make("pipeline_memory", **arguments))
        except PeerFailed as failure:
            report.problem(f"pipeline, memory, {stages} stages: {failure}")
            continue
        for stage in range(stages):
            kept = min(parts, stages - stage)
            names = ("weights", "slots", "gradients")
            row = {"stages": stages, "device": stage, "blocks": int(found["blocks"][stage])}
            row |= {f"{name} MiB": float(found[name][stage]) for name in names}
            part = float(found["activations"][stage]) / parts
            row |= {"activations of a part MiB": part, "parts kept": kept}
            fixed = sum(float(found[name][stage]) for name in names)
            row["sum MiB"] = fixed + kept * part
            row["with GPipe's schedule MiB"] = fixed + (parts if stages > 1 else 1) * part
            rows.append(row)
    title = f"Pipeline stages: memory of each device, {workload.describe()} in {parts} parts"
    report.add(Table(title, rows))


def _step_rows(start, arguments, report, stage_counts, parts):
    """Returns the rows of a number of parts; the losses must be the same, bit for bit."""
    where = f"pipeline, {parts} parts"
    print(f"\n{where}", flush=True)
    rows = []
    with contextlib.ExitStack() as stack, Turns(where, report) as turns:
        crew = {stages: stack.enter_context(_worker(start, stages, {})) for stages in stage_counts}
        calls = report.options.search_calls
        for stages, worker in crew.items():
            turns.add(stages, worker, "pipeline", calls, most=0.0, **arguments)
        seconds = turns.seconds()
        first = next(iter(seconds.values()))
        for stages, values in seconds.items():
            row = {
                "parts": parts,
                "stages": stages,
                "ms": 1e3 * statistics.median(values),
                "times the first": ratio(values, first),
            }
            if stages > 1:
                worker = crew[stages]
                key = worker.make("pipeline_profile", **arguments)
                profiles = [worker.outputs(key) for _ in range(report.options.rounds)]
                worker.drop(key)
                row |= idle_shares(profiles, stages, parts)
            rows.append(row)
    return rows


def idle_shares(profiles: Sequence[dict], stages: int, parts: int) -> dict:
    """Returns the idle shares in the profiles of a step, as cells of the table, in percent."""
    measured, simulated, by_device = [], [], []
    for profile in profiles:
        span = profile["end"].max() - profile["start"].min()
        busy = [busy_seconds(profile, profile["stage"] == stage) for stage in range(stages)]
        by_device.append([100 * (1 - each / span) for each in busy])
        measured.append(statistics.mean(by_device[-1]))
        passes = [
            [
                busy_seconds(
                    profile, (profile["stage"] == stage) & (profile["backward"] == backward)
                )
                / parts
                for stage in range(stages)
            ]
            for backward in (False, True)
        ]
        simulated.append(100 * simulated_idle_share(*passes, parts))
    devices = np.median(by_device, axis=0)
    return {
        "idle %": Spread.of(measured),
        "idle % of each device": " ".join(f"{share:.0f}" for share in devices),
        "simulated %": Spread.of(simulated),
        "(k-1)/(m+k-1) %": 100 * (stages - 1) / (parts + stages - 1),
    }


def busy_seconds(profile: dict, chosen: np.ndarray) -> float:
    """Returns how long at least one of the chosen operations was running."""
    order = np.argsort(profile["start"][chosen])
    total, until = 0.0, -np.inf
    for begin, end in zip(profile["start"][chosen][order], profile["end"][chosen][order]):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def simulated_idle_share(forward: Sequence[float], backward: Sequence[float], parts: int) -> float:
    """Returns the mean idle share of stages that compute independently, by their seconds per part.

    The schedule is that of `bert_tf.training.pipelined_step`.
    """
    last = len(forward) - 1
    free = [0.0] * (last + 1)  # when each stage has done what it has begun
    arrived = {}  # when the gradient of a part is there, by stage and part
    for tick in range(parts + last):
        if tick < parts:
            time = 0.0
            for stage in range(last + 1):
                time = free[stage] = max(free[stage], time) + forward[stage]
        for stage in reversed(range(last + 1)):
            part = tick - (last - stage)
            if 0 <= part < parts:
                begin = max(free[stage], arrived.get((stage, part), 0.0))
                arrived[stage - 1, part] = free[stage] = begin + backward[stage]
    return 1 - parts * (sum(forward) + sum(backward)) / (max(free) * (last + 1))
