"""Compares the estimates of a calibrated machine with training steps on it."""

import itertools
from collections.abc import Callable
from typing import Any

from .calibration import Calibration
from .local_workers import local_workers
from .measuring import small_config, step_estimate

_MIB = 2**20
TURN_SECONDS = 1.0

MODELS = ((2, 128), (6, 384), (12, 256))  # layers, hidden size
LENGTHS = (64, 128)
BATCHES = (8, 32)  # over all workers; if these are more, each has one row


def validate(
    calibration: Calibration, progress: Callable = iter
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measures steps and returns the rows of two tables: of times, and of memory.

    Args:
        calibration: Of this machine; its setups are measured.
        progress: Wraps the sequence of setups and models, such as `tqdm.tqdm`.

    Raises:
        PeerFailed: If a worker fails.
    """
    times, peaks = [], []
    for setup, (layers, hidden) in progress(list(itertools.product(calibration.setups, MODELS))):
        workers, threads = setup.workers, setup.threads
        config = small_config(layers, hidden)
        where = {"workers": workers, "threads": threads, "model": f"L{layers} H{hidden}"}
        with local_workers(workers, threads) as staff:
            # The largest first: memory that a process has had hides what a smaller step needs.
            sizes = itertools.product(sorted(BATCHES)[::-1], sorted(LENGTHS)[::-1])
            for index, (batch, length) in enumerate(sizes):
                part = max(batch // workers, 1)
                step = {**where, "batch": part * workers, "length": length}
                found = step_estimate(config, part, length, workers, setup.rates, setup.link)
                key = staff.make("step", config=config, batch=part, length=length)
                # The first call creates the slots and compiles.
                staff.first_call(key)
                staff.ask("reset_peak")
                times.append({**step, **_time(found, staff.seconds(key, TURN_SECONDS))})
                if index == 0 and workers == 1:
                    peak = staff.ask("peak_mib")[0] - staff.imported_mib
                    peaks.append({**step, **_peak(found, peak)})
                staff.drop(key)
    return times, peaks


def _time(found, measured):
    """Columns of the table of times; `measured` is in seconds."""
    estimated = found.seconds_per_step
    return {
        "estimated ms": 1e3 * estimated,
        "measured ms": 1e3 * measured,
        "ratio": estimated / measured,
    }


def _peak(found, peak):
    """Columns of the table of memory; `peak` is in MiB, without the imports."""
    (state,) = found.memory
    fixed = (state.total - state.activations) / _MIB
    estimated = state.activations / _MIB
    return {
        "weights, gradients, slots MiB": fixed,
        "estimated activations MiB": estimated,
        "measured beyond MiB": peak - fixed,
        "ratio": estimated / (peak - fixed),
    }
