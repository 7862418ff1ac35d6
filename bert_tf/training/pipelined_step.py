"""Losses and gradients of a batch whose parts pass through the stages of a pipeline.

Every stage works on one part at a time, in the order of the schedule "one forward, one backward":
stage i of k first computes k - i parts forward, then one backward and one forward in turn. So it
keeps the activations of at most k - i parts (GPipe's schedule keeps those of all m), and the share
of the time in which it waits is that of GPipe, (k - 1) / (m + k - 1), if all stages take as long.

The parts are traced one after the other without a loop, because TensorFlow runs the operations of
several devices at the same time only within one graph. Control dependencies keep the order of a
stage; nothing but data connects the stages.

Reference: Huang et al. 2019 (GPipe, arXiv 1811.06965); Narayanan et al. 2019 (PipeDream, SOSP,
figure 4) and 2021 (arXiv 2104.04473, section 2.2) for the schedule.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError, require, user_error
from bert_tf.layers.encoder import BertEncoder
from bert_tf.layers.pipeline import PipelinePlacement, PipelineRun, wrap_backbone
from bert_tf.ops import native

_SEED_STATE = "seed_generator_state"  # the name of the variable of a `keras.random.SeedGenerator`


@dataclasses.dataclass(eq=False)
class _Transfer:
    """A tensor that one stage computes and a later one uses, and the gradient of that use."""

    source: int
    output: tf.Tensor
    target: int
    input: tf.Tensor
    gradient: tf.Tensor | None = None


class _Part(PipelineRun):
    """One part of a batch: forward through all stages within the context, then backward by stage.

    `number` is that of the part, for the names of operations, which profiles show; `done` is, for
    each stage, what must be computed before the stage begins with this part.
    """

    def __init__(
        self, placement: PipelinePlacement, number: int, done: Sequence[list[tf.Operation]]
    ):
        super().__init__(placement)
        self.loss = None  # to differentiate
        self._number = number
        self._done = done
        self._tapes = [tf.GradientTape() for _ in placement.devices]
        self._transfers = []
        self._stage = None  # that computes now

    @contextlib.contextmanager
    def computing_on(self, stage: int) -> Iterator[None]:
        """Computes on the device of a stage, recorded by the tape of the stage alone."""
        before = self._stage
        with contextlib.ExitStack() as scopes:
            scopes.enter_context(super().computing_on(stage))
            scopes.enter_context(tf.name_scope(f"stage_{stage}_part_{self._number}"))
            if stage != before:
                if before is not None:
                    scopes.enter_context(self._tapes[before].stop_recording())
                scopes.enter_context(self._tapes[stage])
            self._stage = stage
            try:
                yield
            finally:
                self._stage = before

    @contextlib.contextmanager
    def blocks_of(self, stage: int) -> Iterator[None]:
        """Waits until the stage has done what comes before this part in its schedule, too."""
        with tf.control_dependencies(self._done[stage]), self.computing_on(stage):
            yield

    def received(self, tensor: tf.Tensor, source: int) -> tf.Tensor:
        stage = self._stage
        if source == stage:
            return tensor
        with tf.control_dependencies(self._done[stage]):
            copy = tf.identity(tensor)
        self._tapes[stage].watch(copy)
        self._transfers.append(_Transfer(source, tensor, stage, copy))
        return copy

    def outputs(self, stage: int) -> list[tf.Tensor]:
        """Returns what a stage has computed for others; of the last one the loss."""
        own = [self.loss] if stage == self.placement.last else []
        return own + [each.output for each in self._transfers if each.source == stage]

    def backward(self, stage: int, variables: Sequence[keras.Variable]) -> tuple[list, list]:
        """Computes the gradients of a stage, whose later stages must have been computed.

        Returns the gradients of the variables, None for those that the stage does not use, and
        those that earlier stages wait for.
        """
        used = [each for each in self._transfers if each.source == stage]
        used = [each for each in used if each.gradient is not None]
        targets, gradients = [each.output for each in used], [each.gradient for each in used]
        if stage == self.placement.last:
            targets, gradients = [self.loss, *targets], [tf.ones_like(self.loss), *gradients]
        taken = [each for each in self._transfers if each.target == stage]
        sources = [*(each.input for each in taken), *variables]
        found = self._tapes[stage].gradient(targets, sources, gradients)
        # The gradient of a table is a `tf.IndexedSlices`.
        found = [None if each is None else tf.convert_to_tensor(each) for each in found]
        for transfer, gradient in zip(taken, found):
            transfer.gradient = gradient
        sent = [each for each in found[: len(taken)] if each is not None]
        return found[len(taken) :], sent


def pipelined_gradients(
    placement: PipelinePlacement,
    num_parts: int,
    losses: Callable[[int], tuple[tf.Tensor, tf.Tensor]],
    variables: Sequence[keras.Variable],
) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
    """Computes the sums of the losses and of the gradients of all parts of a batch.

    The sums are added in the order of the parts, as on one device.

    Args:
        placement: The `PipelinePlacement`; the gradients are on the devices of their stages.
        num_parts: m, the number of parts.
        losses: A function of the number of a part, from 0: its loss, and the loss to differentiate.
        variables: The variables to differentiate with respect to; the gradient of an unused one
            is None.
    """
    last = placement.last
    stages = range(last + 1)
    done = [[] for _ in stages]
    total, gradients = None, [None] * len(variables)
    parts = {}
    for tick in range(num_parts + last):
        if tick < num_parts:
            parts[tick] = part = _Part(placement, tick, done)
            with part:
                loss, part.loss = losses(tick)
                total = loss if total is None else total + loss
            done = [_all_of(part.outputs(stage)) for stage in stages]
        for stage in reversed(stages):
            index = tick - (last - stage)
            if not 0 <= index < num_parts:
                continue
            with (
                tf.control_dependencies(done[stage]),
                tf.device(placement.devices[stage]),
                tf.name_scope(f"stage_{stage}_part_{index}_backward"),
            ):
                found, sent = parts[index].backward(stage, variables)
                for place, gradient in enumerate(found):
                    if gradient is not None:
                        before = gradients[place]
                        gradients[place] = gradient if before is None else before + gradient
                        sent.append(gradients[place])
                done[stage] = _all_of(sent)
        parts.pop(tick - last, None)
    return total, gradients


@contextlib.contextmanager
def seeds_of(num_parts: int | tf.Tensor, num_computed: int, model: keras.Model) -> Iterator[None]:
    """Leaves the random states as after `num_parts`, though `num_computed` parts are computed.

    One device does not compute the parts that have no rows, and draws no seeds for them. All parts
    that are computed within the context draw equally many. `num_parts` is a scalar int32 where the
    batch decides.
    """
    # Else all parts have rows.
    states = seed_states(model) if tf.is_tensor(num_parts) else []
    before = [tf.cast(tf.convert_to_tensor(state), tf.int64) for state in states]
    yield
    for state, first in zip(states, before):
        drawn = tf.cast(tf.convert_to_tensor(state), tf.int64) - first  # [2]: 0, count
        drawn = drawn * tf.cast(num_parts, tf.int64) // num_computed
        state.assign(tf.cast(first + drawn, state.dtype))


def seed_states(model: keras.Model) -> list[keras.Variable]:
    """Returns the random states of a model's layers."""
    return [variable for variable in model.variables if variable.name == _SEED_STATE]


def _all_of(tensors):
    """Returns one operation to wait for in place of many tensors, as few edges of the graph."""
    return [tf.group(*tensors)]


def pipeline_stages(
    model: keras.Model, devices: Sequence[str], blocks_per_stage: Sequence[int] | None = None
) -> PipelinePlacement:
    """Divides a model among several devices, for training that needs more memory than one has.

    Each device gets consecutive blocks of the encoder with their optimizer state; the first one
    also the embeddings, the last one the pooler, the heads and the loss. In a step of `fit`, the
    parts of `compile(gradient_accumulation_steps=m)` pass through the k stages, and different
    stages work on different parts at the same time. A stage waits for the others for about
    (k - 1) / (m + k - 1) of the time, so m should be a few times k. Stage i, counted from 0, stores
    the activations of at most k - i parts. The order of all sums is that of one device: on CPUs in
    float32, losses and weights are the same, bit for bit.

    Call it after everything that replaces weights (loading, LoRA, pruning) and before `compile`.
    Checkpoints and configurations do not contain the placement. So that a model never has to fit on
    one GPU, create it within `tf.device("CPU:0")`.

    Args:
        model: A model of a task, which must not be compiled yet.
        devices: The names of k devices, such as `["GPU:0", "GPU:1"]`, in the order of the stages. k
            is at most the number of blocks.
        blocks_per_stage: The number of blocks of each stage. None divides them equally.

    Returns:
        The `PipelinePlacement`: which device has which blocks.

    Raises:
        UserError: If the model has no backbone, more than one encoder, weights for inference, or an
            optimizer already; if its blocks share weights (ALBERT, MPNet); if `devices` are too
            many, repeated or not available; if `blocks_per_stage` does not fit; or under a
            `tf.distribute` strategy or on a TPU.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> devices = [device.name for device in tf.config.list_logical_devices("CPU")]
        >>> bert_tf.training.pipeline_stages(model, devices[:1]).stages
        (0, 0)
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5), gradient_accumulation_steps=2)
        >>> history = model.fit(texts, labels, verbose=0)

    Reference: Huang et al. 2019 (GPipe, arXiv 1811.06965); Narayanan et al. 2021
    (arXiv 2104.04473), section 2.2, for the schedule.
    """
    backbone = getattr(model, "backbone", None)
    if backbone is None or not hasattr(model, "pipeline_placement"):
        received = type(model).__name__
        raise user_error("`model`", "be the model of a task, such as a BertPretrainer", received)
    encoders = _encoders_in(model)
    if len(encoders) != 1:
        raise UserError(f"`model` must have one encoder. Received: {len(encoders)} encoders")
    backbone.require_kernels("divided into pipeline stages")
    if getattr(model, "optimizer", None) is not None:
        raise UserError(
            "`model` must not be compiled before `pipeline_stages`, because the optimizer's state "
            f"is placed with the weights. Received: {type(model).__name__} with an optimizer"
        )
    _require_one_replica(model)
    config = backbone.config
    if config.shared_blocks or config.relative_attention_num_buckets:
        raise UserError(
            "`model` must have blocks that share no weights. Received: "
            f"shared_blocks={config.shared_blocks}, relative_attention_num_buckets="
            f"{config.relative_attention_num_buckets}"
        )
    config.require_bert_blocks("divided into pipeline stages")
    num_blocks = len(backbone.encoder.blocks)
    names = _checked_devices(devices, num_blocks)
    stages = _stages(num_blocks, len(names), blocks_per_stage)
    placement = PipelinePlacement(tuple(names), stages)
    _move_variables(model, placement)
    model.pipeline_placement = placement
    wrap_backbone(backbone)
    for step in ("train", "test", "predict"):
        setattr(model, f"{step}_function", None)  # traced with the variables before
    return placement


def make_pipeline_devices(count: int) -> list[str]:
    """Returns devices for `pipeline_stages`: GPUs if there are any, otherwise logical CPUs.

    The logical CPUs are made here, which must be done before TensorFlow uses a device.

    Args:
        count: The number of devices.

    Raises:
        UserError: If there are fewer GPUs, or if TensorFlow has already started with fewer CPUs.

    Example:
        >>> bert_tf.training.distribution.make_pipeline_devices(1)
        ['/device:CPU:0']
    """
    gpus = tf.config.list_logical_devices("GPU") if tf.config.list_physical_devices("GPU") else []
    if gpus:
        rule = f"must be at most {len(gpus)}, the number of GPUs"
        require(count <= len(gpus), rule, UserError, count=count)
        return [gpu.name for gpu in gpus[:count]]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    try:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], logical
        )
    except (RuntimeError, ValueError) as error:
        cpus = len(tf.config.list_logical_devices("CPU"))
        if cpus < count:
            expected = f"not have started before {count} logical CPUs are made"
            raise user_error("TensorFlow", expected, f"{cpus} logical CPUs ({error})") from None
    return [f"/device:CPU:{index}" for index in range(count)]


def _encoders_in(model):
    """Returns the encoders of the model and of the models in it."""
    inner = [_encoders_in(layer) for layer in model.layers if isinstance(layer, keras.Model)]
    own = [layer for layer in model.layers if isinstance(layer, BertEncoder)]
    return own + [encoder for encoders in inner for encoder in encoders]


def _require_one_replica(model):
    strategy = model.distribute_strategy
    if tf.distribute.has_strategy() or strategy.num_replicas_in_sync > 1 or native.is_on_tpu():
        if tf.distribute.has_strategy():
            strategy = tf.distribute.get_strategy()
        raise UserError(
            "`pipeline_stages` must be called without a `tf.distribute` strategy and not on a TPU: "
            f"a pipeline is not replicated. Received: {type(strategy).__name__}"
        )


def _checked_devices(devices, num_blocks):
    """Returns the full names of the devices."""
    known = {_short(device.name): device.name for device in tf.config.list_logical_devices()}
    names = [known.get(_short(str(device))) for device in devices]
    if None in names:
        unknown = devices[names.index(None)]
        raise UserError(
            f"`devices` must be of {', '.join(known)}. Received: {unknown!r}. "
            "`tf.config.set_logical_device_configuration` makes logical devices."
        )
    if not 1 <= len(names) <= num_blocks:
        raise user_error("`devices`", f"be 1 to {num_blocks}, the number of blocks", len(names))
    require(len(set(names)) == len(names), "must be different", UserError, devices=list(devices))
    return names


def _short(name):
    """Returns "CPU:0" for "/device:CPU:0" and "/job:localhost/replica:0/task:0/device:CPU:0"."""
    return name.rpartition("device:")[2].upper()


def _stages(num_blocks, num_stages, blocks_per_stage):
    """Returns the stage of each block. Earlier stages get no fewer blocks than the last one."""
    if blocks_per_stage is None:
        return tuple(block * num_stages // num_blocks for block in range(num_blocks))
    sizes = list(blocks_per_stage)
    if len(sizes) != num_stages or sum(sizes) != num_blocks or min(sizes) < 1:
        raise UserError(
            f"`blocks_per_stage` must be {num_stages} numbers of at least 1 whose sum is "
            f"{num_blocks}, the number of blocks. Received: {blocks_per_stage=}"
        )
    return tuple(stage for stage, size in enumerate(sizes) for _ in range(size))


def _move_variables(model, placement):
    """Moves each variable to the device of its stage."""
    backbone = model.backbone
    stages = dict.fromkeys(map(id, model.variables), placement.last)
    stages |= dict.fromkeys(map(id, backbone.embeddings.variables), 0)
    for block, stage in zip(backbone.encoder.blocks, placement.stages):
        stages |= dict.fromkeys(map(id, block.variables), stage)
    for variable in model.variables:
        keras_compat.move_variable(variable, placement.devices[stages[id(variable)]])
