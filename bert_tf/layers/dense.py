"""A dense layer on rows: one 2-D matmul, which TensorFlow fuses with the bias (and GELU)."""

import keras
import tensorflow as tf

from bert_tf.layers.initializers import bert_initializer


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(keras.layers.Layer):
    """`x @ kernel + bias` on `[R, in]`.

    Not `keras.layers.EinsumDense`, whose BatchMatMul keeps every fusion away: a plain MatMul with
    BiasAdd becomes one oneDNN call. `matmul` leaves the bias out, for a caller that adds it in a
    fused op of its own.

    Args:
        units: Width of the output.
        initializer_range: Standard deviation of the kernel's truncated normal initializer.

    Example:
        >>> Dense(4)(tf.ones([3, 2])).shape
        TensorShape([3, 4])

    Reference: google-research/bert modeling.py, `tf.layers.dense`.
    """

    def __init__(self, units: int, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.initializer_range = initializer_range

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[input_shape[-1], self.units],
            initializer=bert_initializer(self.initializer_range),
        )
        self.bias = self.add_weight(name="bias", shape=[self.units], initializer="zeros")
        self.built = True

    def matmul(self, x: tf.Tensor) -> tf.Tensor:
        """`x @ kernel` without the bias: `[R, in]` -> `[R, units]`."""
        return tf.matmul(x, tf.convert_to_tensor(self.kernel))

    def call(self, x):
        return tf.nn.bias_add(self.matmul(x), tf.convert_to_tensor(self.bias))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "initializer_range": self.initializer_range,
        }
