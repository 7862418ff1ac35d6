"""What a dense layer computes after its matmul, and the forms that its kernel can have.

A form has `apply(x, epilogue)`, which computes `x @ kernel` and what follows it, and
`fuses_feed_forward`: whether its `feed_forward` computes two layers in one op. A caller therefore
does not need to know whether a kernel is trained, has LoRA, or is prepacked or quantized. The
variables belong to the `Dense` layer, so files name them in the same way in every form.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.layers.activation import ACTIVATIONS
from bert_tf.layers.dropout import next_seed, stateless_dropout
from bert_tf.ops.fused_dense import FUSED_ACTIVATIONS, GATED_UNITS
from bert_tf.ops.native import needs_static_shapes, use_native


@dataclasses.dataclass(frozen=True, eq=False)
class Epilogue:
    """The bias and either an activation, or dropout, a residual and LayerNorm.

    z = x @ kernel
    y = z + bias | activation(z + bias) | LayerNorm(residual + dropout(z + bias))
      | residual + dropout(z + bias) | activation(first half of z + bias) * (second half)
    """

    bias: tf.Tensor | None = None  # [units], or None; `Dense.apply` sets the layer's
    activation: str | None = None  # as in `BertConfig`
    is_gated: bool = False  # whether half of the units are the factors of the others, activated
    layer_norm: keras.layers.Layer | None = None  # a `ResidualLayerNorm`, with its dropout
    normalizes: bool = True  # or only the dropout of `layer_norm` is applied (pre-LN)
    residual: tf.Tensor | None = None  # [R, units]
    training: bool = False  # whether there is dropout before LayerNorm
    dropout_seed: tf.Tensor | None = None  # a scalar int64; None draws a seed

    def only_adds_bias(self) -> bool:
        """Returns whether y is z + bias."""
        others = (self.activation, self.layer_norm)
        return self.bias is not None and not self.is_gated and others == (None, None)

    def apply_unfused(self, z: tf.Tensor) -> tf.Tensor:
        """Computes y `[R, units]` from z `[R, units]` in ops that have gradients."""
        norm = self.layer_norm
        if norm is not None:
            dropout_rate, seed = norm.dropout_rate if self.training else 0.0, self.dropout_seed
            if dropout_rate and seed is None:
                seed = next_seed(norm.seed_generator)
            if not self.normalizes:
                z = self._biased(z)
                z = stateless_dropout(z, dropout_rate, seed) if dropout_rate else z
                return z if self.residual is None else self.residual + z
            weights = norm.gamma, norm.beta, norm.epsilon
            options = {"dropout_rate": dropout_rate, "seed": seed, "is_rms": norm.is_rms}
            return ops.fused_residual_layer_norm(z, self.residual, self.bias, *weights, **options)
        if self.activation is None:
            return z if self.bias is None else tf.nn.bias_add(z, self.bias)
        with_bias = ACTIVATIONS[self.activation].with_bias
        if with_bias is not None and self.bias is not None and not self.is_gated:
            return with_bias(z, self.bias)
        return self._activated(self._biased(z))

    def _biased(self, z):
        return z if self.bias is None else tf.nn.bias_add(z, self.bias)

    def _activated(self, z):
        function = ACTIVATIONS[self.activation].function
        if not self.is_gated:
            return function(z)
        if self.activation in FUSED_ACTIVATIONS:
            return ops.fused_gate(z, self.activation)
        first, second = tf.split(z, 2, axis=-1)
        return function(first) * second

    def apply_fused(self, dense: Callable, x: tf.Tensor, kernel, units: int) -> tf.Tensor:
        """Computes y `[R, units]` from x `[R, in]` in the op of the matmul, for inference.

        `dense` is `ops.fused_dense` or `ops.quantized_dense`, `kernel` what it takes as the kernel.
        """
        has_gate = not self.is_gated or units % GATED_UNITS == 0
        if self.activation not in FUSED_ACTIVATIONS or not has_gate:
            return self._activated(dense(x, kernel, units, bias=self.bias))
        norm, options = self.layer_norm if self.normalizes else None, {}
        if norm is not None and not norm.is_rms:
            beta = tf.zeros_like(norm.gamma) if norm.beta is None else norm.beta
            options = {"gamma": norm.gamma, "beta": beta, "epsilon": norm.epsilon}
        options |= {"bias": self.bias, "activation": self.activation, "residual": self.residual}
        y = dense(x, kernel, units, is_gated=self.is_gated, **options)
        if norm is None or not norm.is_rms:
            return y
        weights = norm.gamma, norm.beta, norm.epsilon
        return ops.fused_residual_layer_norm(y, None, None, *weights, is_rms=True)


@dataclasses.dataclass(frozen=True, eq=False)
class FloatKernel:
    """A kernel `[in, units]` that TensorFlow multiplies and that can be trained."""

    kernel: keras.Variable
    fuses_feed_forward: ClassVar[bool] = False

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` and the epilogue: `[R, in]` -> `[R, units]`."""
        kernel = tf.convert_to_tensor(self.kernel)
        is_plain = x.dtype.size == 2 and x.shape.rank == 2 and epilogue.only_adds_bias()
        if is_plain and needs_static_shapes() and use_native():
            return _biased_product(x, kernel, _in_float32(epilogue.bias))
        return epilogue.apply_unfused(tf.matmul(x, kernel))


# A separate function, because TensorFlow keeps the graph in which tf.custom_gradient was called.
@tf.function(autograph=False, reduce_retracing=True, jit_compile=True)
@tf.custom_gradient
def _biased_product(x, kernel, bias):
    """Computes `x @ kernel + bias` in bfloat16 or float16, rounded once, for XLA.

    `bias` is float32. XLA on a GPU adds a variable of that dtype to a float32 product in the kernel
    of the matmul. A bias that is cast before takes another pass over memory. Without the native
    attention, XLA adds the bias where it divides the result into queries, keys and values.
    """

    def gradient(dy):
        d_bias = tf.reduce_sum(tf.cast(dy, tf.float32), axis=0)
        d_kernel = tf.matmul(x, dy, transpose_a=True)
        return tf.matmul(dy, kernel, transpose_b=True), d_kernel, d_bias

    product = tf.raw_ops.BatchMatMulV3(x=x, y=kernel, Tout=tf.float32)
    return tf.cast(product + bias, x.dtype), gradient


def _in_float32(bias):
    """Returns a bias as float32, if it is the cast of a variable what the variable holds."""
    is_cast = tf.is_symbolic_tensor(bias) and bias.op.type == "Cast"
    source = bias.op.inputs[0] if is_cast else bias
    return source if source.dtype == tf.float32 else tf.cast(bias, tf.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class LoraKernel:
    """A frozen kernel W `[in, units]` to which the trained `scale * A @ B` is added.

    A is `[in, r]` and B `[r, units]`.

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


class _PackedKernel:
    """A kernel that is multiplied for inference, in one op with what follows.

    A subclass has `dense_op`, `feed_forward_op`, and `tensors`, the kernel as these ops take it.
    """

    shape: tuple[int, int]  # [in, units] of the original kernel

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` and the epilogue in one pass: `[R, in]` -> `[R, units]`."""
        return epilogue.apply_fused(self.dense_op, x, self.tensors(), self.shape[1])

    def feed_forward(
        self, second: "_PackedKernel", x: tf.Tensor, between: Epilogue, norm: Epilogue
    ) -> tf.Tensor:
        """Computes two layers, this one and `second`, in one op: `[R, H]` -> `[R, H]`.

        `between` are the bias and the activation of the first, "gelu" or "gelu_new"; `norm` the
        bias and LayerNorm of the second, whose residual is x.
        """
        return self.feed_forward_op(
            x,
            self.tensors(),
            between.bias,
            second.tensors(),
            norm.bias,
            norm.layer_norm.gamma,
            norm.layer_norm.beta,
            inner_units=self.shape[1],
            activation=between.activation,
            epsilon=norm.layer_norm.epsilon,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class PrepackedKernel(_PackedKernel):
    """A kernel in floating point, in the order in which `ops.fused_dense` reads it.

    `packed` is the result of `ops.pack_dense`, in the compute dtype of the layer or in bfloat16.
    """

    packed: keras.Variable
    shape: tuple[int, int]
    dense_op = staticmethod(ops.fused_dense)
    feed_forward_op = staticmethod(ops.fused_feed_forward)

    @property
    def fuses_feed_forward(self) -> bool:
        """Whether one op computes two layers: in bfloat16, to which x is rounded."""
        return self.packed.dtype == "bfloat16"

    def tensors(self):
        return tf.convert_to_tensor(self.packed)

    def assign(self, kernel: tf.Tensor) -> None:
        """Prepacks a kernel `[in, units]` of a float dtype."""
        self.packed.assign(ops.pack_dense(tf.cast(kernel, self.packed.dtype)))

    def unpacked(self) -> tf.Tensor:
        """Returns the kernel `[in, units]`."""
        return ops.unpack_dense(self.tensors(), *self.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Int8Kernel(_PackedKernel):
    """A kernel of 8-bit integers with one scale per column.

    `variables` are the parts of an `ops.QuantizedKernel`, in its order; the last one only if x has
    a static scale.
    """

    variables: list[keras.Variable]
    shape: tuple[int, int]
    fuses_feed_forward: ClassVar[bool] = True
    dense_op = staticmethod(ops.quantized_dense)
    feed_forward_op = staticmethod(ops.quantized_feed_forward)

    def tensors(self):
        return ops.QuantizedKernel(*map(tf.convert_to_tensor, self.variables))

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
        kernel = self.tensors()
        values = ops.unpack_quantized_dense(kernel.packed, *self.shape)
        parts = {"values": values, "scale": kernel.scale, "smoothing": kernel.smoothing}
        is_static = len(self.variables) == len(kernel)
        return {**parts, "static_scale": kernel.static_scale} if is_static else parts

    def is_smoothed(self) -> bool:
        """Returns whether the smoothing is something other than ones."""
        return bool(tf.reduce_any(self.tensors().smoothing != 1.0))
