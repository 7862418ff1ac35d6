"""Memory and time of a training run on some devices, cut in one way.

Device r·k + i computes stage i of replica r, so the stages of a replica are neighbours.
"""

import dataclasses
from collections.abc import Mapping

from . import memory, parameters, pipeline, work
from .communication import Link, all_reduce, ring_all_reduce
from .memory import Memory
from .rates import Rates
from .training_run import TrainingRun


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The devices.

    Args:
        rates: Those of one device, in the precision of the run.
        num_devices: How many.
        devices_per_machine: How many one machine has.
        memory: Bytes of a device that a run can use.
        inner: The link between devices of one machine.
        outer: The link between devices of different machines.
        schedule: One of `pipeline.SCHEDULES`.
        stores_probabilities: As in `Device`.
    """

    rates: Rates
    num_devices: int
    devices_per_machine: int
    memory: float
    inner: Link
    outer: Link
    schedule: str = "1f1b"
    stores_probabilities: bool = False

    def link(self, first: int, second: int) -> Link:
        """Returns the link between two devices, by their numbers."""
        machine = first // self.devices_per_machine
        return self.inner if machine == second // self.devices_per_machine else self.outer


@dataclasses.dataclass(frozen=True)
class Cut:
    """How a step is divided: replicas × stages devices, and parts of a replica's batch."""

    replicas: int
    stages: int
    parts: int
    checkpointing: bool = False


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a run needs under a cut.

    Attributes:
        cut: The cut.
        blocks: Encoder blocks by stage.
        memory: By stage.
        seconds: Of a step by purpose; they add up.
        sequences: Sequences per step.
        tokens: Real tokens per step.
        flops: Those of the model in a step, without what is computed twice.
    """

    cut: Cut
    blocks: tuple[int, ...]
    memory: tuple[Memory, ...]
    seconds: Mapping[str, float]
    sequences: int
    tokens: float
    flops: float

    @property
    def seconds_per_step(self) -> float:
        return sum(self.seconds.values())

    @property
    def sequences_per_second(self) -> float:
        return self.sequences / self.seconds_per_step

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds_per_step

    @property
    def largest_memory(self) -> Memory:
        """The memory of the stage that needs the most."""
        return max(self.memory, key=lambda stage: stage.total)

    def bottleneck(self) -> str:
        """Returns the purpose that takes the most time."""
        return max(self.seconds, key=self.seconds.get)


def estimate(run: TrainingRun, cut: Cut, cluster: Cluster) -> Estimate:
    """Returns the memory and the time of a run under a cut.

    Args:
        run: The run; its batch must be a multiple of replicas × parts.
        cut: The cut; at most as many stages as the model has blocks.
        cluster: The devices.
    """
    sequences = run.train_batch_size / cut.replicas / cut.parts  # of a micro-batch
    rates, size = cluster.rates, run.sizes.compute_bytes
    num_blocks = run.config.num_hidden_layers
    block = work.block_work(run, sequences, cut.checkpointing, cluster.stores_probabilities)
    block_seconds = rates.seconds(block, size)
    first = rates.seconds(work.embeddings_work(run, sequences), size)
    last = rates.seconds(work.heads_work(run, sequences), size)
    blocks = pipeline.blocks_per_stage(num_blocks, cut.stages, block_seconds, first, last)
    counts = _parameters(run, blocks)
    compute = [count * block_seconds for count in blocks]
    compute[0] += first
    compute[-1] += last
    sends = _send_seconds(run, sequences, cut, cluster)
    adds = [0.0] * cut.stages
    if cut.parts > 1:
        adds = [rates.pass_seconds(work.COPY, work.accumulation_bytes(run, n)) for n in counts]
    slowest = max(range(cut.stages), key=lambda i: compute[i] + sends[i] + adds[i])
    stages = [sum(parts) for parts in zip(compute, sends, adds)]
    bubble = pipeline.bubble_share(cut.stages, cut.parts)
    kind = work.optimizer_pass(run)
    updates = [rates.pass_seconds(kind, work.optimizer_bytes(run, n)) for n in counts]
    seconds = {
        "compute": cut.parts * compute[slowest],
        "accumulation": cut.parts * adds[slowest],
        "send": cut.parts * sends[slowest],
        "bubble": bubble * pipeline.pipeline_seconds(stages, cut.parts),
        "all_reduce": _all_reduce_seconds(run, counts, cut, cluster),
        "optimizer": max(updates) / rates.efficiency,
        "overhead": rates.seconds_per_step,
    }
    return Estimate(
        cut,
        tuple(blocks),
        tuple(_memory(run, sequences, i, blocks, counts, cut, cluster) for i in range(cut.stages)),
        seconds,
        run.train_batch_size,
        run.train_batch_size * run.max_seq_length * run.real_tokens,
        model_flops(run),
    )


def model_flops(run: TrainingRun) -> float:
    """Returns the FLOPs of a step that no implementation can avoid."""
    batch = run.train_batch_size
    block = work.block_work(run, batch, stores_probabilities=True)
    return run.config.num_hidden_layers * block.flops + work.heads_work(run, batch).flops


def _parameters(run, blocks):
    last = len(blocks) - 1
    return [memory.stage_parameters(run, n, i == 0, i == last) for i, n in enumerate(blocks)]


def _send_seconds(run, sequences, cut, cluster):
    """Seconds by stage to send activations on and gradients back, for one micro-batch."""
    num_bytes = memory.block_input(run, sequences)
    links = [cluster.link(i, i + 1).send(num_bytes) for i in range(cut.stages - 1)]
    # A stage sends its activations to the next one, and gradients to the one before it.
    return [sum(links[max(0, i - 1) : i + 1]) for i in range(cut.stages)]


def _all_reduce_seconds(run, counts, cut, cluster):
    """Seconds until all stages have summed their gradients, at the same time."""
    longest = 0.0
    for stage, count in enumerate(counts):
        devices = [replica * cut.stages + stage for replica in range(cut.replicas)]
        machines = len({device // cluster.devices_per_machine for device in devices})
        within = -(-cut.replicas // machines)
        num_bytes = run.sizes.weight_bytes * count
        seconds = all_reduce(num_bytes, within, machines, cluster.inner, cluster.outer)
        longest = max(longest, seconds)
    if cut.stages > 1:  # the two copies of the word embeddings
        num_bytes = run.sizes.weight_bytes * parameters.word_table(run.config)
        longest += ring_all_reduce(num_bytes, 2, cluster.link(0, cut.stages - 1))
    return longest


def _memory(run, sequences, stage, blocks, counts, cut, cluster):
    is_first, is_last = stage == 0, stage == cut.stages - 1
    in_flight = pipeline.micro_batches_in_flight(cluster.schedule, stage, cut.stages, cut.parts)
    frozen = parameters.frozen(run) if is_last else 0
    state = memory.state(run, counts[stage], frozen, cut.parts, cut.replicas)
    activations = memory.stage_activations(
        run,
        sequences,
        blocks[stage],
        in_flight,
        cut.checkpointing,
        is_first,
        is_last,
        cluster.stores_probabilities,
    )
    return dataclasses.replace(state, activations=activations)
