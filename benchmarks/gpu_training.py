"""Measures the pre-training step on a GPU in bfloat16: speed, memory, model FLOPs utilisation.

The step is that of `contest.py`, under the policy mixed_bfloat16 on random weights, with the GPU
kernels and with plain TensorFlow, each without and with XLA. `auto` should choose the fastest.

Model FLOPs utilisation (Chowdhery et al., arXiv 2204.02311, appendix B) is the arithmetic that the
step needs on real tokens, without recomputation, divided by the time and by the GPU's dense peak.
"""

import contextlib
import dataclasses
import itertools
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence

from bert_tf.errors import UserError

from . import workloads
from .peers import OURS_BFLOAT16
from .report import Report, Table
from .timing import Spread
from .workers import PeerFailed
from .workloads import Workload

CONFIGS = ("base", "large")
WORKLOADS = ("128x128", "32x512")

# Dense bfloat16 matmuls with float32 sums, in TFLOP/s, from NVIDIA's data sheets. (For newer GPUs
# they also print twice as much, with 2:4 sparsity.) The patterns are for the names that TensorFlow
# reports; the first that matches is used.
PEAK_TFLOPS = (
    (r"\bA100\b", 312.0),
    (r"\bA30\b", 165.0),
    (r"\bA10\b", 125.0),
    (r"\bL4\b", 121.0),
    (r"\bL40S\b", 362.0),
    (r"\bL40\b", 181.0),
    (r"\bH100 PCIe\b", 756.0),
    (r"\bH100 NVL\b", 835.0),
    (r"\bH100 80GB HBM3\b", 989.0),
    (r"\bH200\b", 989.0),
)

# The ways to run the step: the value of `BERT_TF_OPS`, and whether XLA compiles it.
ARRANGEMENTS = {
    "native": ("native", "graph"),
    "native, XLA": ("native", "xla"),
    "plain TensorFlow": ("reference", "graph"),
    "plain TensorFlow, XLA": ("reference", "xla"),
}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The name of a GPU and its peak in FLOP/s."""

    name: str
    peak_flops: float


def peak_tflops(name: str) -> float | None:
    """Returns the peak of a GPU in TFLOP/s, or None if the table does not have it."""
    return next((value for pattern, value in PEAK_TFLOPS if re.search(pattern, name)), None)


def require_gpu(peak: float | None = None) -> Gpu:
    """Returns the first GPU that TensorFlow sees; `peak` is its peak if not that of the table."""
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        built = "is built with CUDA" if tf.test.is_built_with_cuda() else "is built without CUDA"
        raise UserError(
            f"--device=gpu must be a GPU that TensorFlow sees. Received: none; TensorFlow "
            f"{tf.__version__} {built}. On a machine with an NVIDIA GPU, install "
            "`tensorflow[and-cuda]`; on others, use --device=cpu."
        )
    name = tf.config.experimental.get_device_details(devices[0]).get("device_name", "unknown")
    peak = peak if peak is not None else peak_tflops(name)
    if peak is None:
        raise UserError(
            "--peak_tflops must be set to the dense bfloat16 peak of this GPU, which is not in the "
            f"table. Received: {name!r}. Its data sheet has the peak (without sparsity)."
        )
    return Gpu(name, peak * 1e12)


def run(
    start: Callable,
    configs: Mapping[str, dict],
    workload_list: Sequence[Workload],
    gpu: Gpu,
    report: Report,
    steps: int,
) -> None:
    """Adds one table per model.

    `start` is a function (peer, model directory, environment) -> `Worker`: every row gets a new
    process. After the optimizer steps of a measurement the host waits for the GPU.
    """
    rounds = report.options.rounds
    for name, config in configs.items():
        rows = []
        for workload, (label, arrangement) in itertools.product(
            workload_list, ARRANGEMENTS.items()
        ):
            batch = workload.describe()
            try:
                seconds, peak = _measure(start, config, workload, rounds, steps, *arrangement)
            except PeerFailed as failure:  # out of memory, for example
                report.problem(f"{name}, {batch}, {label}: {failure}")
                continue
            median = statistics.median(seconds)
            # XLA compiles for minutes: what is measured is shown even if the run is cut off.
            print(f"{name}, {batch}, {label}: {1e3 * median:.1f} ms per step", file=sys.stderr)
            flops = workloads.training_flops(workload, config)
            rows.append(
                {
                    "batch": batch,
                    "ops": label,
                    "ms per step": Spread.of([1e3 * value for value in seconds]),
                    "examples/s": len(workload.lengths) / median,
                    "tokens/s": workload.tokens / median,
                    "peak MiB": peak,
                    "FLOPs utilisation": flops / median / gpu.peak_flops,
                }
            )
        title = (
            f"Pre-training step of {name} on {gpu.name}, mixed_bfloat16; {rounds} rounds of "
            f"{steps} steps; peak {gpu.peak_flops / 1e12:.0f} TFLOP/s"
        )
        report.add(Table(title, rows, bars="examples/s"))


def _measure(start, config, workload, rounds, steps, backend, variant):
    """Returns the seconds of each round, and the peak memory of the GPU in MiB or None."""
    batches = workloads.batches(workload, None, config["vocab_size"], training=True)
    # The worker creates its own weights, so it needs no directory of a model.
    worker = start(OURS_BFLOAT16, "", environment={"BERT_TF_OPS": backend})
    with contextlib.closing(worker):
        arguments = {"batches": batches, "variant": variant, "config": config, "steps": steps}
        key = worker.make("training", **arguments)
        worker.warm_up(key, 1)
        worker.ask("device_memory", reset=True)
        return worker.time(key, rounds), worker.ask("device_memory")
