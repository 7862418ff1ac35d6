"""Public figures of accelerators, from the makers' data sheets.

Peaks are of dense matmuls, without sparsity. Bandwidths of links are in one direction, half of what
NVIDIA's data sheets print. On an A100 or H100, float32 matmuls are in TF32, TensorFlow's default;
on a TPU they are in bfloat16, XLA's default.

    V100    NVIDIA V100 data sheet; a DGX-2 has 16 of them and eight 100 Gb/s network cards
    A100    NVIDIA A100 data sheet; a DGX A100 has 8 of them and eight 200 Gb/s cards
    H100    NVIDIA H100 data sheet (SXM); a DGX H100 has 8 of them and eight 400 Gb/s cards
    TPU     cloud.google.com/tpu/docs/v3 and /v4, per chip; the bandwidth is the all-reduce
            bandwidth of a pod divided by its chips, and a pod counts as one machine

Latencies of GPUs are those of NCCL's model of a ring with the Simple protocol (NVIDIA/nccl,
src/graph/tuning.cc, `hwLat`). Google publishes none for TPUs: that of NVLink is used.
"""

import dataclasses
from collections.abc import Mapping

from .communication import Link

_NVLINK_LATENCY, _NETWORK_LATENCY = 3.4e-6, 14.0e-6  # NCCL, hwLat: NVLINK and NET, Ring, Simple

CPU = "cpu"  # this machine, as `calibration.py` measured it


@dataclasses.dataclass(frozen=True)
class Device:
    """An accelerator.

    Args:
        name: Its key in `DEVICES`.
        peak_flops: FLOP/s of matmuls by precision.
        memory: Bytes.
        memory_bandwidth: Bytes per second.
        inner: The link to a device of the same machine.
        outer: The link to a device of another machine.
        devices_per_machine: How many one machine has.
    """

    name: str
    peak_flops: Mapping[str, float]
    memory: float
    memory_bandwidth: float
    inner: Link
    outer: Link
    devices_per_machine: int


def _peaks(sixteen_bits: float, float32: float) -> dict[str, float]:
    peaks = dict.fromkeys(("mixed_bfloat16", "mixed_float16", "bfloat16"), sixteen_bits * 1e12)
    return {"float32": float32 * 1e12, **peaks}


def _gpu(name, peaks, memory, bandwidth, nvlink, network, per_machine):
    """Arguments in TFLOP/s, GiB and GB/s."""
    return Device(
        name,
        peaks,
        memory * 2**30,
        bandwidth * 1e9,
        Link(nvlink * 1e9, _NVLINK_LATENCY),
        Link(network * 1e9, _NETWORK_LATENCY),
        per_machine,
    )


def _tpu(name, peak, bandwidth, link, chips):
    inner = Link(link * 1e9, _NVLINK_LATENCY)
    # Between pods: one 100 Gb/s card of a host for its four chips.
    outer = Link(100e9 / 8 / 4, _NETWORK_LATENCY)
    return Device(name, _peaks(peak, peak), 32 * 2**30, bandwidth * 1e9, inner, outer, chips)


# V100 has no bfloat16: its tensor cores compute in float16 only.
_V100_PEAKS = {"float32": 15.7e12, "mixed_float16": 125e12}

DEVICES = {
    device.name: device
    for device in (
        _gpu("v100-32", _V100_PEAKS, 32, 900, 150, 8 * 12.5 / 16, 16),
        _gpu("a100-40", _peaks(312, 156), 40, 1555, 300, 25, 8),
        _gpu("a100-80", _peaks(312, 156), 80, 2039, 300, 25, 8),
        _gpu("h100-80", _peaks(989, 494), 80, 3350, 450, 50, 8),
        _tpu("tpu-v3", 123, 900, 340e3 / 1024, 1024),
        _tpu("tpu-v4", 275, 1200, 1.1e6 / 4096, 4096),
    )
}
