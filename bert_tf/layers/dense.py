"""A dense layer on rows: one 2-D matmul, which TensorFlow fuses with the bias (and GELU)."""

import keras
import tensorflow as tf

from bert_tf import ops
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
        self.packed_kernel = None

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[input_shape[-1], self.units],
            initializer=bert_initializer(self.initializer_range),
        )
        self.bias = self.add_weight(name="bias", shape=[self.units], initializer="zeros")
        self.built = True

    def pack(self) -> None:
        """Keeps the kernel only as `bert_tf.ops.fused_dense` reads it: for inference, for good.

        The kernel itself is dropped, so there is nothing that could be assigned to and leave the
        packed one behind.
        """
        packed = ops.pack_dense(tf.cast(tf.convert_to_tensor(self.kernel), self.compute_dtype))
        self._tracker.unlock()
        self.packed_kernel = self.add_weight(
            name="packed_kernel",
            shape=packed.shape,
            dtype=self.compute_dtype,
            initializer="zeros",
            trainable=False,
        )
        self._untrack_variable(self.kernel)
        self.kernel = None
        self._tracker.lock()
        self.packed_kernel.assign(packed)

    def fused(self, x: tf.Tensor, **epilogue) -> tf.Tensor:
        """`x @ kernel + bias` and what `bert_tf.ops.fused_dense` can do after it; once packed."""
        def cast(tensor):
            return None if tensor is None else tf.cast(tensor, self.compute_dtype)

        return ops.fused_dense(
            x,
            tf.convert_to_tensor(self.packed_kernel),
            self.units,
            bias=cast(tf.convert_to_tensor(self.bias)),
            **{
                name: cast(value) if name in ("residual", "gamma", "beta") else value
                for name, value in epilogue.items()
            },
        )

    def matmul(self, x: tf.Tensor) -> tf.Tensor:
        """`x @ kernel` without the bias: `[R, in]` -> `[R, units]`."""
        return tf.matmul(x, tf.convert_to_tensor(self.kernel))

    def call(self, x):
        if self.packed_kernel is not None:
            return self.fused(x)
        return tf.nn.bias_add(self.matmul(x), tf.convert_to_tensor(self.bias))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "initializer_range": self.initializer_range,
        }
