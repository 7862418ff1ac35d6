"""The forms that the kernel of a `Dense` layer can have.

Each has one method `apply(x, epilogue)`, which computes `x @ kernel` and what follows it:
`[R, in]` -> `[R, units]`. A caller therefore does not need to know whether a kernel is trained, has
LoRA, or is prepacked or quantized. The variables belong to the `Dense` layer, so files name them in
the same way in every form.
"""

import dataclasses

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.layers.epilogue import Epilogue


@dataclasses.dataclass(frozen=True, eq=False)
class FloatKernel:
    """A kernel `[in, units]` that TensorFlow multiplies and that can be trained."""

    kernel: keras.Variable

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        return epilogue.after(tf.matmul(x, tf.convert_to_tensor(self.kernel)))


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

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        y = tf.matmul(x, tf.convert_to_tensor(self.kernel))
        low = tf.matmul(x, tf.convert_to_tensor(self.a))  # [R, in] -> [R, r]
        addition = tf.matmul(low, tf.convert_to_tensor(self.b))  # -> [R, units]
        return epilogue.after(y + self.scale * addition)

    def merge(self) -> None:
        """Adds `scale * A @ B` to W."""
        addition = tf.matmul(tf.convert_to_tensor(self.a), tf.convert_to_tensor(self.b))
        self.kernel.assign_add(self.scale * addition)


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
        packed = tf.convert_to_tensor(self.packed)
        return epilogue.within(ops.fused_dense, x, packed, self.shape[1])

    def assign(self, kernel: tf.Tensor) -> None:
        """Prepacks a kernel `[in, units]` of a float dtype."""
        self.packed.assign(ops.pack_dense(tf.cast(kernel, self.packed.dtype)))

    def unpacked(self) -> tf.Tensor:
        """Returns the kernel `[in, units]`."""
        return ops.unpack_dense(tf.convert_to_tensor(self.packed), *self.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Int8Kernel:
    """A kernel of 8-bit integers with one scale per column, prepacked for inference.

    Args:
        variables: The variables with the parts of the kernel.
        shape: The shape `[in, units]` of the kernel before.
    """

    variables: ops.QuantizedKernel
    shape: tuple[int, int]

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        return epilogue.within(ops.quantized_dense, x, self._tensors(), self.shape[1])

    def assign(
        self, values: tf.Tensor, scale: tf.Tensor, smoothing: tf.Tensor | None = None
    ) -> None:
        """Replaces the kernel by another of the same shape.

        Args:
            values: int8 `[in, units]`.
            scale: float32 `[units]`, the factor of each column.
            smoothing: float32 `[in]`, the factor of each column of the input. None means ones.
        """
        kernel = ops.pack_quantized_dense(values, scale, smoothing)
        for variable, value in zip(self.variables, kernel, strict=True):
            variable.assign(value)

    def unpacked(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the arguments of `assign`: the values, the scale and the smoothing."""
        kernel = self._tensors()
        values = ops.unpack_quantized_dense(kernel.packed, *self.shape)
        return values, kernel.scale, kernel.smoothing

    def is_smoothed(self) -> bool:
        """Returns whether the smoothing is something other than ones."""
        return bool(tf.reduce_any(tf.convert_to_tensor(self.variables.smoothing) != 1.0))

    def _tensors(self) -> ops.QuantizedKernel:
        return ops.QuantizedKernel(*map(tf.convert_to_tensor, self.variables))
