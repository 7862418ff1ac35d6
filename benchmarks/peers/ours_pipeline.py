"""The pre-training step of bert_tf on several logical CPUs, each with some of the blocks.

The environment variable `STAGES` of the process is the number of devices. TensorFlow's devices
share their threads, so each operation gets one thread, and there are as many threads as devices.
"""

import contextlib
import os
import re

import keras
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.layers.pipeline import PipelineRun
from bert_tf.training.distribution import make_pipeline_devices

from .. import memory_use
from .base import LEARNING_RATE, STAGES, Peer, Task
from .ours import FEATURES, LABELS, Ours, training_task

_MIB = 2**20
_SCOPE = re.compile(r"stage_(\d+)_part_(\d+)")  # the innermost one says where an op belongs
_BACKWARD = re.compile(r"^gradient_tape/|_backward[/_]")
_TRANSFERS = ("_Send", "_Recv", "_HostSend", "_HostRecv")


class OursPipeline(Peer):
    """`BertPretrainer` with random weights, which are the same for every number of stages."""

    version = Ours.version

    def __init__(self, setup):
        super().__init__(setup)
        stages = int(os.environ[STAGES])
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(stages)
        self._devices = make_pipeline_devices(stages)
        self._steps = {}  # by their number of parts

    def _model(self, config, parts, is_placed=True):
        keras.utils.set_random_seed(0)
        model = bert_tf.BertPretrainer(bert_tf.BertBackbone(bert_tf.BertConfig(**config)))
        if is_placed:
            bert_tf.training.pipeline_stages(model, self._devices)
        optimizer = bert_tf.training.AdamWeightDecay(learning_rate=LEARNING_RATE)
        model.compile(optimizer, gradient_accumulation_steps=parts)
        return model

    def pipeline(self, batches, config, parts):
        """Creates a task with one step; its outputs are the loss of the first one, with dropout."""
        task = self._step(batches, config, parts)
        return Task(task.run, lambda: {"loss": np.asarray(task.run())})

    def pipeline_profile(self, batches, config, parts):
        """Creates a task whose outputs are the operations of one step: their stages, parts, whether
        they are of the backward pass, and their starts and ends in seconds."""
        task = self._step(batches, config, parts)
        task.run()

        def outputs():
            tf.profiler.experimental.start(self.setup.scratch)
            task.run()
            tf.profiler.experimental.stop()
            return _operations(self.setup.scratch)

        return Task(task.run, outputs)

    def _step(self, batches, config, parts):
        if parts not in self._steps:  # tracing takes long
            # One device takes the step that has no stages.
            model = self._model(config, parts, is_placed=len(self._devices) > 1)
            self._steps[parts] = training_task(model, batches[0])
        return self._steps[parts]

    def pipeline_memory(self, batches, config):
        """Creates a task whose outputs are the MiB of each stage: weights, slots of the optimizer,
        gradients, and the activations that a batch leaves for the backward pass."""
        model = self._model(config, 1)
        model.optimizer.build(model.trained_variables())
        features, labels = (
            {name: tf.constant(batches[0][name]) for name in names} for names in (FEATURES, LABELS)
        )

        def outputs():
            _activations(model, features, labels)  # allocates what stays for further calls
            return {
                "blocks": np.bincount(model.pipeline_placement.stages),
                "weights": self._mib(model.weights),
                "slots": self._mib(model.optimizer.variables),
                "gradients": self._mib(model.trained_variables()),
                "activations": _activations(model, features, labels),
            }

        return Task(outputs, outputs)

    def _mib(self, variables):
        """Returns the MiB of variables on each device."""
        found = np.zeros(len(self._devices))
        for variable in variables:
            place = int(variable.value.device.rpartition(":")[2])
            found[place] += variable.value.dtype.size * np.prod(variable.shape) / _MIB
        return found


class _WatchedRun(PipelineRun):
    """Measures by how much the memory of the process grows in each stage."""

    def __init__(self, placement):
        super().__init__(placement)
        self.mib = np.zeros(placement.last + 1)

    @contextlib.contextmanager
    def blocks_of(self, stage):
        before = memory_use.resident_mib(memory_use.CURRENT)
        with super().blocks_of(stage):
            yield
        self.mib[stage] += memory_use.resident_mib(memory_use.CURRENT) - before


def _activations(model, features, labels):
    """Computes the loss eagerly, without a backward pass; returns the MiB kept of each stage."""
    memory_use.give_back()
    before = memory_use.resident_mib(memory_use.CURRENT)
    totals = model.loss_denominators(features, labels, None)
    with tf.GradientTape() as tape, _WatchedRun(model.pipeline_placement) as run:
        predicted = model.forward(features, labels, training=True)
        model.partial_loss(features, labels, predicted, None, True, totals)
    grown = memory_use.resident_mib(memory_use.CURRENT) - before
    del tape
    # What follows the encoder is the rest.
    run.mib[-1] += grown - run.mib.sum()
    return run.mib


def _operations(directory):
    """Returns the operations of stages in the newest profile in a directory."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    paths = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(directory)
        for name in names
        if name.endswith(".xplane.pb")
    ]
    space = xplane_pb2.XSpace()
    with open(max(paths, key=os.path.getmtime), "rb") as file:
        space.ParseFromString(file.read())
    found = []
    for plane in space.planes:
        known = {key: _work_of(value.name) for key, value in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                if known.get(event.metadata_id) is not None:
                    start = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                    end = start + event.duration_ps * 1e-12
                    found.append((*known[event.metadata_id], start, end))
    stages, parts, backward, starts, ends = np.array(found, np.float64).reshape(-1, 5).T
    return {"stage": stages, "part": parts, "backward": backward, "start": starts, "end": ends}


def _work_of(name):
    """Returns the stage, the part and whether it is backward, of an event; None if it has none."""
    name, _, kind = name.rpartition(":")
    scopes = _SCOPE.findall(name)
    if not scopes or kind in _TRANSFERS:
        return None
    return (*map(int, scopes[-1]), bool(_BACKWARD.search(name)))
