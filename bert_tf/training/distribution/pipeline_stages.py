"""Pipeline parallelism: one model on several devices."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError, require, user_error
from bert_tf.layers.encoder import BertEncoder
from bert_tf.layers.pipeline import PipelinePlacement, wrap_backbone
from bert_tf.ops import native


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
