"""A frozen kernel with a trainable low-rank matrix."""

import dataclasses
from typing import ClassVar

import keras
import tensorflow as tf

from bert_tf.layers.kernels.epilogue import Epilogue


@dataclasses.dataclass(frozen=True, eq=False)
class LoraKernel:
    """A kernel W to which the matrix `scale * A @ B` is added.

    Args:
        kernel: W `[in, units]`, which is not trained.
        a: A `[in, r]`.
        b: B `[r, units]`.
        scale: The factor of A @ B.

    Reference: Hu et al. 2021 (arXiv 2106.09685), section 4.1.
    """

    kernel: keras.Variable
    a: keras.Variable
    b: keras.Variable
    scale: float
    fuses_feed_forward: ClassVar[bool] = False

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ (W + scale * A @ B)` and the epilogue: `[R, in]` -> `[R, units]`."""
        y = tf.matmul(x, tf.convert_to_tensor(self.kernel))
        low = tf.matmul(x, tf.convert_to_tensor(self.a))  # [R, in] -> [R, r]
        addition = tf.matmul(low, tf.convert_to_tensor(self.b))  # -> [R, units]
        return epilogue.apply_unfused(y + self.scale * addition)

    def merge(self) -> None:
        """Adds `scale * A @ B` to W."""
        addition = tf.matmul(tf.convert_to_tensor(self.a), tf.convert_to_tensor(self.b))
        self.kernel.assign_add(self.scale * addition)
