"""Measures a `Calibration` of this machine: the parts of a step, then whole small steps.

The rates of the parts come from ops with their gradients at several sizes, large enough that the
start of an op hardly counts. The efficiency and the overheads, which contain the starts of all ops,
are those that explain the times of a few small steps best.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence

from benchmarks.report import machine
from benchmarks.workloads import masked_count
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

from . import work
from .calibration import NO_LINK, Calibration, Setup
from .communication import Link
from .estimate import Cluster, Cut, Estimate, estimate
from .fitting import fit
from .local_workers import LocalWorkers, local_workers
from .rates import Rates
from .training_run import TrainingRun

TURN_SECONDS = 0.3
_FLOAT = 4  # bytes of a float32

# [R, K] x [K, N]: dense layers of several widths, and logits.
MATMULS = (
    (512, 128, 384), (512, 128, 512), (2048, 512, 128), (512, 256, 1024), (2048, 1024, 256),
    (1024, 384, 384), (1024, 384, 1536), (2048, 1536, 384), (512, 768, 3072), (160, 128, 30522),
    (160, 384, 30522),
)  # fmt: skip
# Sequences, length, heads, head size.
ATTENTIONS = ((8, 64, 2, 64), (32, 64, 6, 64), (8, 128, 4, 64), (16, 128, 12, 32), (4, 256, 4, 64))
# Rows and columns of each kind of pass.
SHAPES = {
    work.GELU: ((512, 1024), (2048, 1536)),
    work.LAYER_NORM: ((1024, 256), (4096, 384)),
    work.COPY: ((1024, 768), (2048, 1152)),
    work.LOGITS: ((160, 30522), (640, 30522)),
    work.OPTIMIZER: ((8192, 1024),),
}
# Tensors of the shape that are read or written, as in `work`.
_TENSORS = {
    work.GELU: 5,
    work.LAYER_NORM: 8,
    work.COPY: 3,
    work.LOGITS: work.LOGITS_PASSES,
    work.OPTIMIZER: work.OPTIMIZER_PASSES["adamw"],
}
REDUCED = (2**10, 2**18, 2**21, 2**23)  # numbers in an all-reduce


def small_config(layers: int, hidden: int, vocabulary: int = 30522) -> dict[str, int]:
    """Returns the arguments of `BertConfig`: heads of 64, and by default BERT's vocabulary."""
    return dict(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )


# Model, sequences per worker, length: next to no work, and small models.
STEPS = (
    (small_config(2, 64, 1000), 2, 16),
    (small_config(8, 64, 1000), 2, 16),
    (small_config(2, 128), 8, 64),
    (small_config(2, 512), 8, 64),
    (small_config(4, 256), 8, 128),
    (small_config(6, 256), 16, 128),
)


def calibrate(setups: Sequence[tuple[int, int]], progress: Callable = iter) -> Calibration:
    """Measures this machine.

    Args:
        setups: Numbers of workers and of threads of each.
        progress: Wraps the sequence of setups, such as `tqdm.tqdm`.

    Raises:
        PeerFailed: If a worker fails.
        UserError: If the machine is too busy to be measured.
    """
    facts = machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    measured = [_setup(workers, threads) for workers, threads in progress(setups)]
    return Calibration(facts["processor"], facts["cores"], memory, tuple(measured))


def _setup(workers, threads):
    with local_workers(workers, threads) as staff:
        rates, link = _parts(staff), NO_LINK
        if workers > 1:
            link = _link(staff, workers)
        return Setup(workers, threads, _whole(staff, workers, rates, link), link)


def _parts(staff: LocalWorkers) -> Rates:
    """Returns the rates of the parts."""
    call = staff.measure("nothing", TURN_SECONDS)

    def seconds(kind, shapes):
        times = [staff.measure(kind, TURN_SECONDS, shape=shape) for shape in shapes]
        # A slow call of nothing must not make a time negative.
        return [max(time - call, time / 2) for time in times]

    # As `Rates.matmul_seconds`, for a product and its two gradients.
    features = [(6 * m * k * n, 3 * _FLOAT * (m * k + k * n + m * n)) for m, k, n in MATMULS]
    matmul = fit(features, seconds("matmul", MATMULS))
    features = []
    for sequences, length, heads, size in ATTENTIONS:
        scores = sequences * heads * length**2
        features.append((14 * scores * size, scores))  # 7 products of 2 FLOPs, as `block_work`
    attention = fit(features, seconds("attention", ATTENTIONS))
    passes = {
        kind: _TENSORS[kind] * _FLOAT * sum(map(math.prod, shapes)) / sum(seconds(kind, shapes))
        for kind, shapes in SHAPES.items()
    }
    return Rates(
        seconds_per_flop=matmul[0],
        seconds_per_matmul_byte=matmul[1],
        attention_seconds_per_flop=attention[0],
        attention_seconds_per_score=attention[1],
        bytes_per_second=passes,
    )


def _link(staff, workers):
    """Returns the link that explains the times of all-reduces."""
    times = [staff.measure("all_reduce", TURN_SECONDS, shape=[size]) for size in REDUCED]
    messages = 2 * (workers - 1)
    features = [(messages, messages * _FLOAT * size / workers) for size in REDUCED]
    latency, seconds_per_byte = fit(features, times)
    if not seconds_per_byte:
        raise UserError("An all-reduce must take longer with more data. Received: a busy machine")
    return Link(1 / seconds_per_byte, latency)


def _whole(staff, workers, rates, link):
    """Returns the rates with overheads and efficiency, from whole steps."""
    features, times = [], []
    for config, batch, length in STEPS:
        found = step_estimate(config, batch, length, workers, rates, link)
        divided = found.seconds["compute"] + found.seconds["optimizer"]  # by the efficiency
        fixed = found.seconds_per_step - divided
        arguments = {"config": config, "batch": batch, "length": length}
        features.append((divided, config["num_hidden_layers"], 1))
        times.append(staff.measure("step", TURN_SECONDS, **arguments) - fixed)
    # An all-reduce that took longer alone than a step with it says nothing of the rest.
    kept = [index for index, time in enumerate(times) if time > 0]
    if not kept:
        raise UserError("A step must take longer than its all-reduce. Received: a busy machine")
    inverse, of_block, of_step = fit([features[i] for i in kept], [times[i] for i in kept])
    if not inverse:
        raise UserError("A step must take longer with more work. Received: a busy machine")
    return dataclasses.replace(
        rates, efficiency=1 / inverse, seconds_per_block=of_block, seconds_per_step=of_step
    )


def step_estimate(
    config: dict, batch: int, length: int, workers: int, rates: Rates, link: Link
) -> Estimate:
    """Returns the estimate of the peer's step on workers of this machine.

    Args:
        config: The arguments of `BertConfig`.
        batch: Sequences per worker.
        length: Their length.
        workers: Number of workers.
        rates: Those of a worker.
        link: The link between workers.
    """
    predictions = masked_count(length)
    run = TrainingRun(BertConfig(**config), workers * batch, length, max_predictions=predictions)
    return estimate(run, Cut(workers, 1, 1), Cluster(rates, workers, workers, math.inf, link, link))
