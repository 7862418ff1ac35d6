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
    """A plain encoder, with variables or as a constant graph.

    In bfloat16 the weights are bfloat16 too, which is faster than casting them in every call.
    LayerNorm computes in float32, as that of Keras does.
    """

    VARIANTS = {
        "inference": ("graph", "constants"),
        "inference_bfloat16": ("bfloat16, graph", "bfloat16, constants"),
    }

    @functools.cache
    def _weights(self, precision):
        def variable(name, tensor):  # dense weights [out, in] -> [in, out]
            is_dense = tensor.ndim == 2 and "embeddings" not in name
            dtype = "float32" if "LayerNorm" in name else precision
            return tf.Variable(tf.cast(tensor.T if is_dense else tensor, dtype))

        return {name: variable(name, tensor) for name, tensor in self.setup.encoder_tensors.items()}

    @functools.cache
    def _model(self, variant, precision="float32"):
        weights = self._weights(precision)  # created here, not in the traced function
        return self.compiled(functools.partial(self._encode, weights), variant)

    def matmul(self, shape, variant, dtype="float32"):
        x, kernel = (tf.cast(matrix, dtype) for matrix in matmul_inputs(shape))
        return keras_common.matmul_task(lambda x: tf.matmul(x, kernel), x)

    def matmul_bfloat16(self, shape, variant):
        return self.matmul(shape, variant, "bfloat16")

    def _encode(self, weights, inputs):
        config = self.setup.config
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        size = hidden // heads
        token_ids = inputs["token_ids"]
        batch, length = tf.unstack(tf.shape(token_ids))
        x = (
            tf.gather(weights["embeddings.word_embeddings.weight"], token_ids)
            + weights["embeddings.position_embeddings.weight"][:length]
            + tf.gather(weights["embeddings.token_type_embeddings.weight"], inputs["segment_ids"])
        )
        mask = tf.where(inputs["padding_mask"], 0.0, _MASKED_SCORE)[:, tf.newaxis, tf.newaxis, :]
        mask = tf.cast(mask, x.dtype)
        x = tf.reshape(x, [-1, hidden])  # [B, T, H] -> [B * T, H]

        def dense(x, name):
            return tf.nn.bias_add(tf.matmul(x, weights[f"{name}.weight"]), weights[f"{name}.bias"])

        def layer_norm(x, name):
            wide = tf.cast(x, tf.float32)
            centered = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
            variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
            scale = tf.math.rsqrt(variance + config["layer_norm_eps"])
            y = centered * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]
            return tf.cast(y, x.dtype)

        x = layer_norm(x, "embeddings.LayerNorm")

        def split(rows):  # [B * T, H] -> [B, N, T, D]
            return tf.transpose(tf.reshape(rows, [batch, length, heads, size]), [0, 2, 1, 3])

        for index in range(config["num_hidden_layers"]):
            prefix = f"encoder.layer.{index}"
            query, key, value = (
                split(dense(x, f"{prefix}.attention.self.{role}"))
                for role in ("query", "key", "value")
            )
            scores = tf.matmul(query, key, transpose_b=True) * (1 / math.sqrt(size)) + mask
            context = tf.matmul(tf.nn.softmax(scores), value)  # [B, N, T, D]
            context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, hidden])
            attended = dense(context, f"{prefix}.attention.output.dense")
            x = layer_norm(attended + x, f"{prefix}.attention.output.LayerNorm")
            wide = tf.nn.gelu(dense(x, f"{prefix}.intermediate.dense"), approximate=False)
            narrow = dense(wide, f"{prefix}.output.dense")
            x = layer_norm(narrow + x, f"{prefix}.output.LayerNorm")
        sequence_output = tf.reshape(x, [batch, length, hidden])
        return sequence_output, tf.tanh(dense(sequence_output[:, 0], "pooler.dense"))
