"""Finds the best cut of a run: replicas × stages, parts, gradient checkpointing."""

import dataclasses
import math
from collections.abc import Sequence

from bert_tf.errors import UserError

from .estimate import Cluster, Cut, Estimate, estimate
from .training_run import TrainingRun

_MOST_DEVICES = 4096  # a TPU v4 pod; how far `more_devices` looks
_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Choices:
    """What a search may choose; None: everything possible."""

    stages: int | None = None
    parts: int | None = None
    checkpointing: Sequence[bool] = (False, True)


def divisors(number: int) -> list[int]:
    """Returns the divisors of a number, in ascending order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def all_cuts(run: TrainingRun, num_devices: int, choices: Choices = Choices()) -> list[Cut]:
    """Returns the cuts that use all devices and divide the batch without a rest."""
    cuts = []
    for stages in divisors(num_devices):
        replicas = num_devices // stages
        if choices.stages not in (None, stages) or stages > run.config.num_hidden_layers:
            continue
        if run.train_batch_size % replicas:
            continue
        for parts in divisors(run.train_batch_size // replicas):
            if choices.parts in (None, parts):
                cuts += [Cut(replicas, stages, parts, again) for again in choices.checkpointing]
    return cuts


def search(run: TrainingRun, cluster: Cluster, choices: Choices = Choices()) -> list[Estimate]:
    """Returns the estimates of all cuts that fit into memory, the fastest first.

    Raises:
        UserError: If no cut divides the batch and the blocks, or none fits.
    """
    estimates = _estimates(run, cluster, choices)
    if not estimates:
        raise UserError(
            f"--num_devices must be replicas × stages with at most {run.config.num_hidden_layers} "
            "stages (the model's blocks), and --train_batch_size a multiple of replicas × "
            f"--gradient_accumulation_steps. Received: --num_devices={cluster.num_devices}, "
            f"--train_batch_size={run.train_batch_size}, --stages={choices.stages}, "
            f"--gradient_accumulation_steps={choices.parts}"
        )
    fitting = [one for one in estimates if one.largest_memory.total <= cluster.memory]
    if not fitting:
        raise UserError(_nothing_fits(run, cluster, choices, estimates))
    return sorted(fitting, key=lambda one: (one.seconds_per_step, one.largest_memory.total))


def _estimates(run, cluster, choices):
    cuts = all_cuts(run, cluster.num_devices, choices)
    return [estimate(run, cut, cluster) for cut in cuts]


def _nothing_fits(run, cluster, choices, estimates):
    smallest = min(estimates, key=lambda one: one.largest_memory.total)
    memory, cut = smallest.largest_memory, smallest.cut
    parts = dataclasses.asdict(memory)
    largest = max(parts, key=parts.get)
    enough = more_devices(run, cluster, choices)
    way_out = f"Use devices with at least {memory.total / _GIB:.2f} GiB"
    way_out += f", or --num_devices={enough}." if enough else "."
    if choices.parts is not None or choices.stages is not None or len(choices.checkpointing) < 2:
        way_out += (
            " Without --stages, --gradient_accumulation_steps and --gradient_checkpointing, less "
            "may be enough."
        )
    return (
        f"A device must have room for the run. Received: {cluster.memory / _GIB:.2f} GiB that can "
        f"be used; the cut with the smallest need ({cut.replicas} replicas × {cut.stages} stages, "
        f"{cut.parts} parts, gradient checkpointing {'on' if cut.checkpointing else 'off'}) takes "
        f"{memory.total / _GIB:.2f} GiB, of which {parts[largest] / _GIB:.2f} GiB {largest}. "
        f"{way_out}"
    )


def more_devices(run: TrainingRun, cluster: Cluster, choices: Choices) -> int | None:
    """Returns the smallest power of two times the devices for which a cut fits, or None."""
    number = 2 * cluster.num_devices
    while number <= _MOST_DEVICES:
        larger = dataclasses.replace(cluster, num_devices=number)
        found = _estimates(run, larger, choices)
        if any(one.largest_memory.total <= cluster.memory for one in found):
            return number
        number *= 2
    return None
