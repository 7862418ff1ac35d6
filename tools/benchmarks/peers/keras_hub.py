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

    def variants(self, job, bucket, is_ragged):
        # XLA compiles every shape again, which is too slow for varying lengths.
        return ("graph",) if is_ragged or job == "memory" else ("graph", "xla")

    @functools.cached_property
    def _backbone(self):
        config = self.setup.config
        backbone = keras_hub.models.BertBackbone(
            vocabulary_size=config["vocab_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            hidden_dim=config["hidden_size"],
            intermediate_dim=config["intermediate_size"],
            max_sequence_length=config["max_position_embeddings"],
            dropout=config["hidden_dropout_prob"],
        )
        for layer in backbone.transformer_layers:
            layer._feedforward_intermediate_dense.activation = _erf_gelu
        _assign_encoder(backbone, self.setup.encoder_tensors, config)
        return backbone

    @functools.cache
    def _model(self, variant):
        backbone = self._backbone  # created here, not in the traced function

        def encode(inputs):
            outputs = backbone(inputs, training=False)
            return outputs["sequence_output"], outputs["pooled_output"]

        if variant == "xla":
            return tf.function(encode, jit_compile=True)
        return tf.function(encode, input_signature=[keras_common.signature(tf.int32)])

    def inference(self, batches, variant):
        return keras_common.inference_task(self._model(variant), variant, batches, tf.int32)

    @functools.cached_property
    def pretrainer(self):
        config = self.setup.config
        backbone = self._backbone
        head = keras_hub.layers.MaskedLMHead(
            token_embedding=backbone.token_embedding,
            intermediate_activation=_erf_gelu,
            layer_norm_epsilon=config["layer_norm_eps"],
        )
        next_sentence = keras.layers.Dense(2)
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

    @functools.cached_property
    def optimizer(self):
        optimizer = keras.optimizers.AdamW(
            LEARNING_RATE, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0
        )
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        optimizer.build(self.pretrainer.trainable_variables)
        return optimizer

    def training(self, batches, variant):
        """Creates a task with one optimizer step on the summed gradients of all batches."""
        self.optimizer  # noqa: B018 - its variables must not be created in the traced step
        feeds = [keras_common.constants(batch) for batch in batches]
        variables = self.pretrainer.trainable_variables

        @tf.function(jit_compile=variant == "xla")
        def step(feeds):
            total, sums = 0.0, None
            for feed in feeds:
                # Runs the batches in sequence, so that only one has its activations in memory.
                with tf.control_dependencies(sums or []):
                    with tf.GradientTape() as tape:
                        loss = self.loss(feed, training=True)
                    gradients = tape.gradient(loss, [v.value for v in variables])
                gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
                sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients)]
                total += loss
            self.optimizer.apply(sums, variables)
            return total

        def outputs():
            return {"loss": np.sum([self.loss(feed, training=False).numpy() for feed in feeds])}

        return Task(lambda: float(step(feeds)), outputs)

    def loss(self, feed, training):
        names = (*keras_common.ENCODER_INPUTS, "masked_positions")
        inputs = {name: tf.cast(feed[name], tf.int32) for name in names}
        masked_logits, next_logits = self.pretrainer(inputs, training=training)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(feed["masked_ids"], masked_logits)
        next_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            feed["next_sentence_labels"], next_logits
        )
        masked = tf.reduce_sum(losses * feed["masked_weights"]) / feed["weight_total"]
        return masked + tf.reduce_sum(next_losses) / feed["batch_total"]


def _assign_encoder(backbone, tensors, config):
    heads = config["num_attention_heads"]
    hidden = config["hidden_size"]
    size = hidden // heads

    def dense(layer, name, kernel_shape=None, bias_shape=None):
        kernel, bias = tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]
        layer.kernel.assign(kernel if kernel_shape is None else kernel.reshape(kernel_shape))
        layer.bias.assign(bias if bias_shape is None else bias.reshape(bias_shape))

    def layer_norm(layer, name):
        layer.gamma.assign(tensors[f"{name}.weight"])
        layer.beta.assign(tensors[f"{name}.bias"])

    backbone.token_embedding.embeddings.assign(tensors["embeddings.word_embeddings.weight"])
    backbone.position_embedding.position_embeddings.assign(
        tensors["embeddings.position_embeddings.weight"]
    )
    backbone.segment_embedding.embeddings.assign(tensors["embeddings.token_type_embeddings.weight"])
    layer_norm(backbone.embeddings_layer_norm, "embeddings.LayerNorm")
    for index, layer in enumerate(backbone.transformer_layers):
        prefix = f"encoder.layer.{index}"
        attention = layer._self_attention_layer
        for role in ("query", "key", "value"):
            dense(
                getattr(attention, f"{role}_dense"),
                f"{prefix}.attention.self.{role}",
                [hidden, heads, size],
                [heads, size],
            )
        dense(attention.output_dense, f"{prefix}.attention.output.dense", [heads, size, hidden])
        layer_norm(layer._self_attention_layer_norm, f"{prefix}.attention.output.LayerNorm")
        dense(layer._feedforward_intermediate_dense, f"{prefix}.intermediate.dense")
        dense(layer._feedforward_output_dense, f"{prefix}.output.dense")
        layer_norm(layer._feedforward_layer_norm, f"{prefix}.output.LayerNorm")
    dense(backbone.pooled_dense, "pooler.dense")
