"""The peer bert_tf, compiled by XLA in several variants."""

import contextlib

import tensorflow as tf

import bert_tf
from bert_tf import ops
from bert_tf.ops.native import static_shapes

from . import NO_XLA, XLA_PADDED, XLA_TENSORFLOW, keras_common
from .ours import Ours, training_task


class OursXla(Ours):
    """`bert_tf` with and without XLA. Every task has its own model, which is freed with it."""

    def xla_inference(self, batches, variant):
        backbone = self._backbone_for(variant)

        @tf.function(jit_compile=variant != NO_XLA)
        def encode(inputs):
            with static_shapes() if variant != NO_XLA else contextlib.nullcontext():
                outputs = backbone(inputs)
            return outputs["sequence_output"], outputs["pooled_output"]

        return _traced(keras_common.inference_task(encode, variant, batches), variant)

    def xla_training(self, batches, variant):
        model = self.pretrainer(self._backbone_for(variant), jit_compile=variant != NO_XLA)
        (batch,) = batches
        return _traced(training_task(model, batch), variant)

    def _backbone_for(self, variant):
        return bert_tf.BertBackbone.from_pretrained(
            self.setup.model_directory, padding_free=False if variant == XLA_PADDED else "auto"
        )


def _traced(task, variant):
    """Traces the function of a task with the ops of the variant."""
    with ops.backend("reference") if variant == XLA_TENSORFLOW else contextlib.nullcontext():
        task.run()
    return task
