"""The peer keras-hub.

Its backbone computes the tanh form of GELU for all checkpoints. Here its layers use the erf form,
and its `keras_hub.layers.MaskedLMHead` uses BERT's LayerNorm epsilon, so that its outputs can be
compared with those of the other peers. Neither changes the amount of work.
"""

import functools

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from . import keras_common
from .base import LEARNING_RATE, Task


def _erf_gelu(x):
    return keras.activations.gelu(x, approximate=False)


class KerasHub(keras_common.TensorFlowPeer):
    """`keras_hub.models.BertBackbone` in a `tf.function`, without and with XLA."""

    version = f"{keras_hub.__version__}, Keras {keras.__version__}"
    mask_dtype = tf.int32

    def variants(self, job, bucket, is_ragged):
        # XLA compiles every shape again, which is too slow for varying lengths.
        variants = ("graph",) if is_ragged or job == "memory" else ("graph", "xla")
        if job in ("inference_bfloat16", "training_bfloat16"):
            variants = tuple(f"mixed_bfloat16, {variant}" for variant in variants)
        return variants

    @functools.cache
    def _backbone(self, precision="float32"):
        backbone = keras_hub.models.BertBackbone.from_preset(
            self.setup.model_directory,
            dropout=self.setup.config["hidden_dropout_prob"],
            dtype=precision,
        )
        for layer in backbone.transformer_layers:
            layer._feedforward_intermediate_dense.activation = _erf_gelu
        return backbone

    @functools.cache
    def _model(self, variant, precision="float32"):
        backbone = self._backbone(precision)  # created here, not in the traced function

        def encode(inputs):
            outputs = backbone(inputs, training=False)
            return outputs["sequence_output"], outputs["pooled_output"]

        if variant == "xla":
            return tf.function(encode, jit_compile=True)
        return self.compiled(encode, variant)

    @functools.cache
    def _pretrainer(self, precision):
        config = self.setup.config
        backbone = self._backbone(precision)
        head = keras_hub.layers.MaskedLMHead(
            token_embedding=backbone.token_embedding,
            intermediate_activation=_erf_gelu,
            layer_norm_epsilon=config["layer_norm_eps"],
            dtype=precision,
        )
        next_sentence = keras.layers.Dense(2, dtype=precision)
        positions = keras.Input([None], dtype="int32", name="masked_positions")
        masked_logits = head(backbone.output["sequence_output"], mask_positions=positions)
        next_logits = next_sentence(backbone.output["pooled_output"])
        keras_common.assign_heads(
            self.setup.head_tensors,
            (
                head._intermediate_dense.kernel,
                head._intermediate_dense.bias,
                head._intermediate_layer_norm.gamma,
                head._intermediate_layer_norm.beta,
                head._bias,
                next_sentence.kernel,
                next_sentence.bias,
            ),
        )
        return keras.Model(
            {**backbone.input, "masked_positions": positions}, [masked_logits, next_logits]
        )

    @functools.cache
    def _optimizer(self, precision):
        optimizer = keras.optimizers.AdamW(
            LEARNING_RATE, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0
        )
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        optimizer.build(self._pretrainer(precision).trainable_variables)
        return optimizer

    def training(self, batches, variant, precision="float32"):
        """Creates a task with one optimizer step on the summed gradients of all batches."""
        optimizer = self._optimizer(precision)  # not in the traced step, as it creates variables
        feeds = tf.nest.map_structure(tf.constant, batches)
        pretrainer = self._pretrainer(precision)
        variables = pretrainer.trainable_variables

        @tf.function(jit_compile=variant == "xla")
        def step(feeds):
            total, sums = 0.0, None
            for feed in feeds:
                # Runs the batches in sequence, so that only one has its activations in memory.
                with tf.control_dependencies(sums or []):
                    with tf.GradientTape() as tape:
                        loss = _loss(pretrainer, feed, training=True)
                    gradients = tape.gradient(loss, [v.value for v in variables])
                gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
                sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients)]
                total += loss
            optimizer.apply(sums, variables)
            return total

        def outputs():
            losses = [_loss(pretrainer, feed, training=False).numpy() for feed in feeds]
            return {"loss": np.sum(losses)}

        return Task(lambda: float(step(feeds)), outputs)

    def training_bfloat16(self, batches, variant):
        precision, variant = variant.split(", ")
        return self.training(batches, variant, precision)


def _loss(pretrainer, feed, training):
    names = (*keras_common.ENCODER_INPUTS, "masked_positions")
    inputs = {name: tf.cast(feed[name], tf.int32) for name in names}
    logits = pretrainer(inputs, training=training)
    masked_logits, next_logits = (tf.cast(values, tf.float32) for values in logits)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(feed["masked_ids"], masked_logits)
    next_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        feed["next_sentence_labels"], next_logits
    )
    masked = tf.reduce_sum(losses * feed["masked_weights"]) / feed["weight_total"]
    return masked + tf.reduce_sum(next_losses) / feed["batch_total"]
