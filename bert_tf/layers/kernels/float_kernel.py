"""A plain kernel in floating point."""

import dataclasses

import keras
import tensorflow as tf

from bert_tf.layers.kernels.epilogue import Epilogue


@dataclasses.dataclass(frozen=True, eq=False)
class FloatKernel:
    """A kernel that TensorFlow multiplies and that can be trained.

    Args:
        kernel: `[in, units]`.
    """

    kernel: keras.Variable

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` and the epilogue: `[R, in]` -> `[R, units]`."""
        return epilogue.apply_unfused(tf.matmul(x, tf.convert_to_tensor(self.kernel)))
