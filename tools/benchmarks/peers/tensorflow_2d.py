"""Plain TensorFlow without custom ops: 2-D matmuls that grappler fuses, on padded batches.

This is the code that a careful TensorFlow user would write, to compare the fused ops with.
"""

import functools
import math

import tensorflow as tf

from . import keras_common
from .base import matmul_inputs

_MASKED_SCORE = -1e9


class TensorFlow2D(keras_common.TensorFlowPeer):
    """A plain encoder, with variables or as a constant graph."""

    VARIANTS = {"inference": ("graph", "constants")}

    @functools.cached_property
    def _weights(self):
        return {  # dense weights [out, in] -> [in, out]
            name: tf.Variable(tensor.T if tensor.ndim == 2 and "embeddings" not in name else tensor)
            for name, tensor in self.setup.encoder_tensors.items()
        }

    @functools.cache
    def _model(self, variant):
        self._weights  # noqa: B018 - its variables must not be created in the traced function
        return self.compiled(self._encode, variant)

    def matmul(self, shape, variant):
        x, kernel = matmul_inputs(shape)
        kernel = tf.constant(kernel)
        return keras_common.matmul_task(lambda x: tf.matmul(x, kernel), x)

    def _encode(self, inputs):
        config = self.setup.config
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        size = hidden // heads
        token_ids = inputs["token_ids"]
        batch, length = tf.unstack(tf.shape(token_ids))
        mask = tf.where(inputs["padding_mask"], 0.0, _MASKED_SCORE)[:, tf.newaxis, tf.newaxis, :]
        x = (
            tf.gather(self._weights["embeddings.word_embeddings.weight"], token_ids)
            + self._weights["embeddings.position_embeddings.weight"][:length]
            + tf.gather(
                self._weights["embeddings.token_type_embeddings.weight"], inputs["segment_ids"]
            )
        )
        x = tf.reshape(x, [-1, hidden])  # [B, T, H] -> [B * T, H]
        x = self._layer_norm(x, "embeddings.LayerNorm")

        def split(rows):  # [B * T, H] -> [B, N, T, D]
            return tf.transpose(tf.reshape(rows, [batch, length, heads, size]), [0, 2, 1, 3])

        for index in range(config["num_hidden_layers"]):
            prefix = f"encoder.layer.{index}"
            query, key, value = (
                split(self._dense(x, f"{prefix}.attention.self.{role}"))
                for role in ("query", "key", "value")
            )
            scores = tf.matmul(query, key, transpose_b=True) * (1 / math.sqrt(size)) + mask
            context = tf.matmul(tf.nn.softmax(scores), value)  # [B, N, T, D]
            context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, hidden])
            attended = self._dense(context, f"{prefix}.attention.output.dense")
            x = self._layer_norm(attended + x, f"{prefix}.attention.output.LayerNorm")
            wide = tf.nn.gelu(self._dense(x, f"{prefix}.intermediate.dense"), approximate=False)
            narrow = self._dense(wide, f"{prefix}.output.dense")
            x = self._layer_norm(narrow + x, f"{prefix}.output.LayerNorm")
        sequence_output = tf.reshape(x, [batch, length, hidden])
        return sequence_output, tf.tanh(self._dense(sequence_output[:, 0], "pooler.dense"))

    def _dense(self, x, name):
        return tf.nn.bias_add(
            tf.matmul(x, self._weights[f"{name}.weight"]), self._weights[f"{name}.bias"]
        )

    def _layer_norm(self, x, name):
        mean = tf.reduce_mean(x, axis=-1, keepdims=True)
        centered = x - mean
        variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
        scale = tf.math.rsqrt(variance + self.setup.config["layer_norm_eps"])
        return centered * scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
