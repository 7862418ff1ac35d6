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
        packed: The result of `ops.pack_dense`.
        shape: The shape `[in, units]` of the kernel before.
    """

    packed: keras.Variable
    shape: tuple[int, int]

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` and the epilogue in one pass: `[R, in]` -> `[R, units]`."""
        packed = tf.convert_to_tensor(self.packed)
        return epilogue.within(ops.fused_dense, x, packed, self.shape[1])

    def assign(self, kernel: tf.Tensor) -> None:
        """Prepacks a kernel `[in, units]` of a float dtype."""
        self.packed.assign(ops.pack_dense(tf.cast(kernel, self.packed.dtype)))

    def unpacked(self) -> tf.Tensor:
        """Returns the kernel `[in, units]`."""
        return ops.unpack_dense(tf.convert_to_tensor(self.packed), *self.shape)
