"""A dense layer on rows: one 2-D matmul, which TensorFlow fuses with the bias (and GELU)."""

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
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
        self.lora_rank = None

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[input_shape[-1], self.units],
            initializer=bert_initializer(self.initializer_range),
        )
        self.bias = self.add_weight(name="bias", shape=[self.units], initializer="zeros")
        self.built = True

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes the kernel and trains a low-rank addition to it: Keras's convention.

        Args:
            rank: Width r between A `[in, r]` and B `[r, units]`.
            lora_alpha: `lora_alpha / rank` scales A @ B; None takes the rank.

        Raises:
            UserError: If the layer has one already, or a rank below 1 is asked for.

        Reference: Hu et al. 2021 (arXiv 2106.09685); `keras.layers.Dense.enable_lora`.
        """
        if self.lora_rank is not None or self.packed_kernel is not None or rank < 1:
            raise UserError(
                "`enable_lora` takes a rank of at least 1, once for a layer, before its kernel is "
                f"packed. Received: rank={rank}, lora_rank={self.lora_rank}, "
                f"packed={self.packed_kernel is not None}"
            )
        self._tracker.unlock()
        self.lora_kernel_a = self.add_weight(
            name="lora_kernel_a", shape=[self.kernel.shape[0], rank], initializer="he_uniform"
        )
        self.lora_kernel_b = self.add_weight(
            name="lora_kernel_b", shape=[rank, self.units], initializer="zeros"
        )
        self._tracker.lock()
        self.kernel.trainable = False
        self.lora_rank = rank
        self.lora_alpha = rank if lora_alpha is None else lora_alpha

    def merge_lora(self) -> None:
        """Adds A @ B to the kernel and drops A and B; does nothing if there are none."""
        if self.lora_rank is None:
            return
        addition = tf.matmul(
            tf.convert_to_tensor(self.lora_kernel_a), tf.convert_to_tensor(self.lora_kernel_b)
        )
        self.kernel.assign_add(self.lora_alpha / self.lora_rank * addition)
        self._tracker.unlock()
        for variable in (self.lora_kernel_a, self.lora_kernel_b):
            self._untrack_variable(variable)
        self.lora_kernel_a = self.lora_kernel_b = self.lora_rank = None
        self._tracker.lock()

    def pack(self) -> None:
        """Keeps the kernel only as `bert_tf.ops.fused_dense` reads it: for inference, for good.

        The kernel itself is dropped, so there is nothing that could be assigned to and leave the
        packed one behind.
        """
        if self.lora_rank is not None:
            raise UserError("A kernel with LoRA cannot be packed: call `merge_lora()` first.")
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
        y = tf.matmul(x, tf.convert_to_tensor(self.kernel))
        if self.lora_rank is None:
            return y
        low = tf.matmul(x, tf.convert_to_tensor(self.lora_kernel_a))  # [R, in] -> [R, r]
        addition = tf.matmul(low, tf.convert_to_tensor(self.lora_kernel_b))  # -> [R, units]
        return y + self.lora_alpha / self.lora_rank * addition

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
