"""Measures the pre-training step on a GPU in bfloat16: speed, memory, model FLOPs utilisation.

The step is that of `training.py`, under the policy mixed_bfloat16 on random weights. bert_tf is
measured with its GPU kernels and with plain TensorFlow, each without and with XLA, each in a new
process. The results show which of them `auto` should choose on a GPU.

Model FLOPs utilisation (Chowdhery et al., arXiv 2204.02311, appendix B) is the arithmetic that the
step needs on real tokens, without recomputation, divided by the time and by the GPU's dense peak.
"""

import contextlib
import statistics
from collections.abc import Callable, Mapping, Sequence

from . import workloads
from .gpu import Gpu
from .peers import OURS_BFLOAT16
from .report import Report, Table
from .timing import Spread
from .turns import Options
from .workers import PeerFailed
from .workloads import Workload

CONFIGS = ("base", "large")
WORKLOADS = ("128x128", "32x512")
_MIB = 2**20


# The ways to run the step: the value of `BERT_TF_OPS`, and whether XLA compiles it.
ARRANGEMENTS = {
    "native": ("native", "graph"),
    "native, XLA": ("native", "xla"),
    "plain TensorFlow": ("reference", "graph"),
    "plain TensorFlow, XLA": ("reference", "xla"),
}


def run(
    start: Callable,
    configs: Mapping[str, dict],
    workload_list: Sequence[Workload],
    gpu: Gpu,
    options: Options,
    report: Report,
    steps: int,
    arrangements: Mapping[str, tuple[str, str]] = ARRANGEMENTS,
) -> None:
    """Adds one table per model.

    `start` is a function (peer, model directory, environment) -> `Worker`: every row gets a new
    process. After the optimizer steps of a measurement the host waits for the GPU.
    """
    for name, config in configs.items():
        rows = []
        for workload in workload_list:
            for label, (backend, variant) in arrangements.items():
                arguments = {"variant": variant, "config": config, "steps": steps}
                try:
                    seconds, peak_bytes = _measure(
                        start, backend, workload, options.rounds, arguments
                    )
                except PeerFailed as failure:  # out of memory, for example
                    report.problem(f"{name}, {workload.describe()}, {label}: {failure}")
                    continue
                median = statistics.median(seconds)
                flops = workloads.training_flops(workload, config)
                rows.append(
                    {
                        "batch": workload.describe(),
                        "ops": label,
                        "ms per step": Spread.of([1e3 * value for value in seconds]),
                        "examples/s": len(workload.lengths) / median,
                        "tokens/s": workload.tokens / median,
                        "peak MiB": None if peak_bytes is None else peak_bytes / _MIB,
                        "FLOPs utilisation": flops / median / gpu.peak_flops,
                    }
                )
        title = (
            f"Pre-training step of {name} on {gpu.name}, mixed_bfloat16; {options.rounds} rounds "
            f"of {steps} steps; peak {gpu.peak_flops / 1e12:.0f} TFLOP/s"
        )
        report.add(Table(title, rows, bars="examples/s"))


def _measure(start, backend, workload, rounds, arguments) -> tuple[list[float], int | None]:
    """Returns the seconds of each round and the peak memory of the GPU in bytes."""
    # The worker creates its own weights, so it needs no directory of a model.
    worker = start(OURS_BFLOAT16, "", environment={"BERT_TF_OPS": backend})
    with contextlib.closing(worker):
        vocab_size = arguments["config"]["vocab_size"]
        batches = workloads.batches(workload, None, vocab_size, training=True)
        key = worker.make("training", batches=batches, **arguments)
        worker.warm_up(key, 1)
        worker.device_memory(reset=True)
        return worker.time(key, rounds), worker.device_memory()
