"""Pipeline stages: on which device each part of an encoder is computed.

A `PipelinePlacement` divides the blocks of an encoder into stages, one per device. It applies only
within a `PipelineRun`, which is a step of `fit`, `evaluate` or `predict`. Elsewhere, for example in
an exported graph, the functions of this module do nothing. The code of the model does not mention
stages: `wrap_backbone` wraps its methods.
"""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterator

import keras
import tensorflow as tf

EMBEDDING_LAYERS = -1  # takes the place of a block number: what comes before the first block

_run = contextvars.ContextVar("pipeline_run", default=None)


@dataclasses.dataclass(frozen=True)
class PipelinePlacement:
    """Which device computes each block of an encoder.

    The first device also has the embeddings, the last one everything after the encoder: pooler,
    heads, loss and metrics.
    """

    devices: tuple[str, ...]  # one per stage
    stages: tuple[int, ...]  # of each block, from 0; never below that of the block before

    @property
    def last(self) -> int:
        """The last stage."""
        return len(self.devices) - 1

    def stage_of(self, block: int) -> int:
        """Returns the stage of a block, or of `EMBEDDING_LAYERS`."""
        return 0 if block == EMBEDDING_LAYERS else self.stages[block]


class PipelineRun:
    """A context in which models compute on the devices of the stages of a `PipelinePlacement`."""

    def __init__(self, placement: PipelinePlacement):
        self.placement = placement
        self._scopes = None

    def __enter__(self):
        with contextlib.ExitStack() as scopes:
            token = _run.set(self)
            scopes.callback(_run.reset, token)
            scopes.enter_context(self.computing_on(self.placement.last))
            self._scopes = scopes.pop_all()
        return self

    def __exit__(self, *error):
        return self._scopes.__exit__(*error)

    @contextlib.contextmanager
    def computing_on(self, stage: int) -> Iterator[None]:
        """Computes on the device of a stage."""
        with tf.device(self.placement.devices[stage]):
            yield

    @contextlib.contextmanager
    def blocks_of(self, stage: int) -> Iterator[None]:
        """Computes blocks of a stage, or the embeddings."""
        with self.computing_on(stage):
            yield

    def received(self, tensor: tf.Tensor, source: int) -> tf.Tensor:
        """Returns what the stage `source` has computed, for the stage that computes now."""
        del source
        return tensor


@contextlib.contextmanager
def at_block(block: int) -> Iterator[None]:
    """Computes on the device of a block, or of `EMBEDDING_LAYERS`."""
    run = _run.get()
    with contextlib.nullcontext() if run is None else run.blocks_of(run.placement.stage_of(block)):
        yield


def received(tensor: tf.Tensor | None, block: int) -> tf.Tensor | None:
    """Returns a differentiable tensor that a block or the embeddings made, for use after them.

    Every such tensor that leaves its stage must pass through here, or it gets no gradient.
    """
    run = _run.get()
    if run is None or tensor is None:
        return tensor
    return run.received(tensor, run.placement.stage_of(block))


def wrap_backbone(backbone: keras.Model) -> None:
    """Makes a `BertBackbone` compute on the devices of its stages within every `PipelineRun`.

    It replaces the methods `embed` of the backbone and `run_block` and `call` of its encoder.
    """
    encoder = backbone.encoder
    # These are methods of the classes, so a backbone that is wrapped already is wrapped only once.
    embed = functools.partial(type(backbone).embed, backbone)
    run_block = functools.partial(type(encoder).run_block, encoder)
    encode = functools.partial(type(encoder).call, encoder)

    def staged_embed(*args):
        with at_block(EMBEDDING_LAYERS):
            rows, words = embed(*args)
        return rows, received(words, EMBEDDING_LAYERS)

    def staged_block(index, block, rows, *args):
        with at_block(index):
            return run_block(index, block, received(rows, index - 1), *args)

    def staged_encode(*args, **kwargs):
        states = encode(*args, **kwargs)
        return [received(rows, index - 1) for index, rows in enumerate(states)]

    backbone.embed, encoder.run_block, encoder.call = staged_embed, staged_block, staged_encode
