"""The peer bert_tf, compiled by XLA in several variants."""

import contextlib

import tensorflow as tf

import bert_tf
from bert_tf import ops
from bert_tf.layers.token_layout import static_shapes

from . import NO_XLA, XLA_PADDED, XLA_TENSORFLOW, base, keras_common
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

        (batch,) = batches
        feed = keras_common.constants({name: batch[name] for name in keras_common.ENCODER_INPUTS})
        with _backend(variant):
            encode.get_concrete_function(feed)  # traces it with the ops of the variant
        return base.inference_task(keras_common.until_finished(encode), [feed])

    def xla_training(self, batches, variant):
        model = self.pretrainer(self._backbone_for(variant), jit_compile=variant != NO_XLA)
        (batch,) = batches
        task = training_task(model, batch)
        with _backend(variant):
            task.run()  # traces the step with the ops of the variant
        return task

    def _backbone_for(self, variant):
        return bert_tf.BertBackbone.from_pretrained(
            self.setup.model_directory, padding_free=False if variant == XLA_PADDED else "auto"
        )


def _backend(variant):
    return ops.backend("reference") if variant == XLA_TENSORFLOW else contextlib.nullcontext()
