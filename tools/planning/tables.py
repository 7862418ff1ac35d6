"""The tables that the program prints."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.errors import UserError

from . import cuts, published
from .devices import DEVICES, Device
from .estimate import Estimate
from .training_run import TrainingRun

_GIB = 2**30

# The table of devices: a large batch, as for LAMB.
MODELS = {"base": BertConfig.base(), "large": BertConfig.large()}
NUM_DEVICES = (1, 8, 64, 256)
LENGTHS = ((128, 20), (512, 80))  # with the predictions per sequence of NVIDIA's scripts
BATCH = 8192
USABLE_MEMORY = 0.9


def cut_rows(estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Returns one row per estimate, the first columns being the cut."""
    return [
        {
            "replicas": one.cut.replicas,
            "stages": one.cut.stages,
            "parts": one.cut.parts,
            "checkpointing": "yes" if one.cut.checkpointing else "no",
            "GiB per device": one.largest_memory.total / _GIB,
            "ms per step": 1e3 * one.seconds_per_step,
            "sequences/s": one.sequences_per_second,
            "tokens/s": one.tokens_per_second,
            "model TFLOP/s per device": _tflops(one),
            "most time": one.bottleneck(),
        }
        for one in estimates
    ]


def _tflops(one):
    devices = one.cut.replicas * one.cut.stages
    return one.flops / one.seconds_per_step / devices / 1e12


def time_rows(one: Estimate) -> list[dict[str, Any]]:
    """Returns the time of a step by purpose."""
    total = one.seconds_per_step
    return [
        {"purpose": name, "ms": 1e3 * seconds, "share": seconds / total}
        for name, seconds in one.seconds.items()
        if seconds
    ]


def memory_rows(one: Estimate) -> list[dict[str, Any]]:
    """Returns the memory of a device by purpose, one row per stage."""
    rows = []
    for stage, (blocks, memory) in enumerate(zip(one.blocks, one.memory)):
        parts = {name: value / _GIB for name, value in dataclasses.asdict(memory).items()}
        rows.append({"stage": stage, "blocks": blocks, **parts, "GiB": memory.total / _GIB})
    return rows


def published_rows() -> list[dict[str, Any]]:
    """Returns the published runs with their estimates."""
    return [
        {
            "source": row.source,
            "device": row.device,
            "devices": row.num_devices,
            "precision": row.precision,
            "length": ", ".join(str(length) for length, _ in row.lengths),
            "batch": row.batch * row.parts * row.num_devices,
            "published": row.sequences_per_second,
            "estimated": (speed := published.estimated_speed(row)),
            "ratio": "fitted" if row.is_fitted else f"{speed / row.sequences_per_second:.2f}",
        }
        for row in published.PUBLISHED
    ]


def device_rows() -> list[dict[str, Any]]:
    """Returns the speed of BERT-base and BERT-large on 1 to 256 accelerators of each kind."""
    return [
        _device_row(name, config, device, length, predictions)
        for name, config in MODELS.items()
        for length, predictions in LENGTHS
        for device in DEVICES.values()
    ]


def _device_row(name, config, device, length, predictions):
    precision = best_precision(device)
    row = {"model": name, "length": length, "device": device.name, "precision": precision}
    for number in NUM_DEVICES:
        run = TrainingRun(
            config,
            BATCH,
            length,
            max_predictions=predictions,
            optimizer="lamb",
            precision=precision,
            padding_free=False,
        )
        memory = USABLE_MEMORY * device.memory
        cluster = published.cluster_of(
            device, number, precision, memory=memory, stores_probabilities=True
        )
        try:
            best = cuts.search(run, cluster)[0]
        except UserError:
            row[str(number)] = None
            continue
        row[str(number)] = best.sequences_per_second
        cut = best.cut
        row[f"cut of {number}"] = f"{cut.replicas} × {cut.stages} × {cut.parts}"
    return row


def best_precision(device: Device) -> str:
    """Returns the 16-bit policy that a device computes in."""
    known = device.peak_flops
    return "mixed_bfloat16" if "mixed_bfloat16" in known else "mixed_float16"
