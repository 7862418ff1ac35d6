"""A kernel in the order in which `ops.fused_dense` reads it."""

import dataclasses

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.layers.kernels.epilogue import Epilogue


@dataclasses.dataclass(frozen=True, eq=False)
class PrepackedKernel:
    """A kernel in floating point that was prepacked for inference.

    Args:
        packed: The result of `ops.pack_dense`, in the compute dtype of the layer or in bfloat16.
        shape: The shape `[in, units]` of the original kernel.
    """

    packed: keras.Variable
    shape: tuple[int, int]

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` and the epilogue in one pass: `[R, in]` -> `[R, units]`."""
        packed = tf.convert_to_tensor(self.packed)
        return epilogue.apply_fused(ops.fused_dense, x, packed, self.shape[1])

    @property
    def fuses_feed_forward(self) -> bool:
        """Whether one op computes two layers with kernels of this form."""
        return self.is_bfloat16()

    def is_bfloat16(self) -> bool:
        """Returns whether the kernel is in bfloat16, and x is therefore rounded to it."""
        return self.packed.dtype == "bfloat16"

    def feed_forward(
        self, second: "PrepackedKernel", x: tf.Tensor, between: Epilogue, norm: Epilogue
    ) -> tf.Tensor:
        """Computes two layers in bfloat16 in one pass; see `Int8Kernel.feed_forward`."""
        return ops.fused_feed_forward(
            x,
            tf.convert_to_tensor(self.packed),
            between.bias,
            tf.convert_to_tensor(second.packed),
            norm.bias,
            norm.layer_norm.gamma,
            norm.layer_norm.beta,
            inner_units=self.shape[1],
            activation=between.activation,
            epsilon=norm.layer_norm.epsilon,
        )

    def assign(self, kernel: tf.Tensor) -> None:
        """Prepacks a kernel `[in, units]` of a float dtype."""
        self.packed.assign(ops.pack_dense(tf.cast(kernel, self.packed.dtype)))

    def unpacked(self) -> tf.Tensor:
        """Returns the kernel `[in, units]`."""
        return ops.unpack_dense(tf.convert_to_tensor(self.packed), *self.shape)
