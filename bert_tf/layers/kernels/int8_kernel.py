"""A kernel of 8-bit integers with one scale per column."""

import dataclasses
from typing import ClassVar

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.layers.kernels.epilogue import Epilogue


@dataclasses.dataclass(frozen=True, eq=False)
class Int8Kernel:
    """A kernel that was quantized and prepacked for inference.

    Args:
        variables: The variables with the parts of an `ops.QuantizedKernel`, in its order; the last
            one only if x has a static scale.
        shape: The shape `[in, units]` of the original kernel.
    """

    variables: list[keras.Variable]
    shape: tuple[int, int]
    fuses_feed_forward: ClassVar[bool] = True

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` and the epilogue in one pass: `[R, in]` -> `[R, units]`."""
        return epilogue.apply_fused(ops.quantized_dense, x, self._tensors(), self.shape[1])

    def feed_forward(
        self, second: "Int8Kernel", x: tf.Tensor, between: Epilogue, norm: Epilogue
    ) -> tf.Tensor:
        """Computes two layers in one pass, this one and `second`: `[R, H]` -> `[R, H]`.

        Args:
            second: The kernel of the second layer.
            x: `[R, H]`, which is the residual of `norm` too.
            between: The bias and the activation of the first layer: "gelu" or "gelu_new".
            norm: The bias and LayerNorm of the second layer.
        """
        return ops.quantized_feed_forward(
            x,
            self._tensors(),
            between.bias,
            second._tensors(),
            norm.bias,
            norm.layer_norm.gamma,
            norm.layer_norm.beta,
            inner_units=self.shape[1],
            activation=between.activation,
            epsilon=norm.layer_norm.epsilon,
        )

    def assign(
        self,
        values: tf.Tensor,
        scale: tf.Tensor,
        smoothing: tf.Tensor | None = None,
        static_scale: tf.Tensor | None = None,
    ) -> None:
        """Replaces the kernel by another of the same shape.

        Args:
            values: int8 `[in, units]`.
            scale: float32 `[units]`, the factor of each column.
            smoothing: float32 `[in]`, the factor of each column of the input. None means ones.
            static_scale: float32 `[2]`, if and only if the kernel had one.
        """
        kernel = ops.pack_quantized_dense(values, scale, smoothing, static_scale)
        for variable, value in zip(self.variables, kernel):  # no scale unless it is static
            variable.assign(value)

    def unpacked(self) -> dict[str, tf.Tensor]:
        """Returns the arguments of `assign`."""
        kernel = self._tensors()
        values = ops.unpack_quantized_dense(kernel.packed, *self.shape)
        parts = {"values": values, "scale": kernel.scale, "smoothing": kernel.smoothing}
        is_static = len(self.variables) == len(kernel)
        return {**parts, "static_scale": kernel.static_scale} if is_static else parts

    def is_smoothed(self) -> bool:
        """Returns whether the smoothing is something other than ones."""
        return bool(tf.reduce_any(self._tensors().smoothing != 1.0))

    def _tensors(self):
        return ops.QuantizedKernel(*map(tf.convert_to_tensor, self.variables))
