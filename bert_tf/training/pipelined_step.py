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

from bert_tf.layers.pipeline import PipelinePlacement, PipelineRun

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
