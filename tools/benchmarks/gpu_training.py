"""Measures the pre-training step on a GPU in bfloat16: speed, memory, model FLOPs utilisation.

The step is that of `training.py`, under the policy mixed_bfloat16 on random weights. bert_tf is
measured with its GPU kernels and with plain TensorFlow, each without and with XLA, each in a new
process. The results show which of them `auto` should choose on a GPU.

Model FLOPs utilisation (Chowdhery et al., arXiv 2204.02311, appendix B) is the arithmetic that the
step needs on real tokens, without recomputation, divided by the time and by the GPU's dense peak.
"""

import contextlib
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Arrangement:
    """A way to run the step: the value of `BERT_TF_OPS`, and whether XLA compiles it."""

    label: str
    backend: str
    jit_compile: bool


ARRANGEMENTS = (
    Arrangement("native", "native", False),
    Arrangement("native, XLA", "native", True),
    Arrangement("plain TensorFlow", "reference", False),
    Arrangement("plain TensorFlow, XLA", "reference", True),
)


def run(
    start: Callable,
    configs: Mapping[str, dict],
    workload_list: Sequence[Workload],
    gpu: Gpu,
    options: Options,
    report: Report,
    steps: int,
    arrangements: Sequence[Arrangement] = ARRANGEMENTS,
) -> None:
    """Adds one table per model.

    `start` is a function (peer, model directory, environment) -> `Worker`: every row gets a new
    process. After the optimizer steps of a measurement the host waits for the GPU.
    """
    for name, config in configs.items():
        rows = []
        for workload in workload_list:
            for arrangement in arrangements:
                try:
                    rows.append(
                        measure(start, config, workload, arrangement, gpu, options.rounds, steps)
                    )
                except PeerFailed as failure:  # out of memory, for example
                    report.problem(f"{name}, {workload.describe()}, {arrangement.label}: {failure}")
        title = (
            f"Pre-training step of {name} on {gpu.name}, mixed_bfloat16; {options.rounds} rounds "
            f"of {steps} steps; peak {gpu.peak_flops / 1e12:.0f} TFLOP/s"
        )
        report.add(Table(title, rows, bars="examples/s"))


def measure(
    start: Callable,
    config: dict,
    workload: Workload,
    arrangement: Arrangement,
    gpu: Gpu,
    rounds: int,
    steps: int,
) -> dict:
    """Measures one row of the table."""
    environment = {"BERT_TF_OPS": arrangement.backend}
    # It creates its own weights, so it needs no directory of a model.
    with contextlib.closing(start(OURS_BFLOAT16, "", environment=environment)) as worker:
        batches = workloads.batches(workload, None, config["vocab_size"], training=True)
        variant = "xla" if arrangement.jit_compile else "graph"
        key = worker.make("training", batches=batches, variant=variant, config=config, steps=steps)
        worker.warm_up(key, 1)
        worker.device_memory(reset=True)
        seconds = worker.time(key, rounds)
        peak_bytes = worker.device_memory()
    spread = Spread.of(seconds)
    count = len(workload.lengths)
    flops = workloads.training_flops(workload, config)
    return {
        "batch": workload.describe(),
        "ops": arrangement.label,
        "ms per step": Spread.of([1e3 * value for value in seconds]),
        "examples/s": count / spread.median,
        "tokens/s": workload.tokens / spread.median,
        "peak MiB": None if peak_bytes is None else peak_bytes / _MIB,
        "FLOPs utilisation": flops / spread.median / gpu.peak_flops,
    }
