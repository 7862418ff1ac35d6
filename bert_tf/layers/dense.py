"""A dense layer on rows: a 2-D matmul and what follows it, fused where that is faster."""

import dataclasses

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.base import keras_compat
from bert_tf.base.keras_compat import QuickLayer
from bert_tf.errors import UserError, require, user_error
from bert_tf.layers.activation import ACTIVATIONS
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.layers.kernels import Epilogue, FloatKernel, Int8Kernel, LoraKernel, PrepackedKernel
from bert_tf.layers.quantization import require_int8

# The names of the variables with the parts of an `ops.QuantizedKernel`.
_INT8_VARIABLES = (
    "packed_kernel",
    "kernel_scale",
    "kernel_column_sums",
    "input_smoothing",
    "input_scale",
)


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(QuickLayer):
    """Computes `x @ kernel + bias` on `[R, in]`.

    A MatMul with BiasAdd becomes one oneDNN call. `keras.layers.EinsumDense` uses BatchMatMul,
    which cannot be fused. A caller that computes more than the bias after the matmul calls `apply`
    instead of the layer.

    Args:
        units: Width of the output.
        initializer_range: Standard deviation of the truncated normal initializer of the kernel.
        use_bias: Whether a bias is added. Without it, `bias` is None.

    Call arguments:
        x: `[R, in]`.

    Returns:
        `[R, units]`.

    Attributes:
        kernel_impl: The object that multiplies by the kernel: a `FloatKernel`, `LoraKernel`,
            `PrepackedKernel` or `Int8Kernel`.

    Example:
        >>> Dense(4)(tf.ones([3, 2])).shape
        TensorShape([3, 4])

    Reference: google-research/bert modeling.py, `tf.layers.dense` and `create_initializer`.
    """

    def __init__(
        self, units: int, initializer_range: float = 0.02, use_bias: bool = True, **kwargs
    ):
        super().__init__(**kwargs)
        self.units = units
        self.use_bias = use_bias
        self.initializer_range = initializer_range
        self.kernel_impl = None  # until it is built

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[input_shape[-1], self.units],
            initializer=truncated_normal(self.initializer_range),
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=[self.units], initializer="zeros")
        self.kernel_impl = FloatKernel(self.kernel)
        self.built = True

    def apply(self, x: tf.Tensor, epilogue: Epilogue) -> tf.Tensor:
        """Computes `x @ kernel` `[R, units]`, adds the bias and computes the rest of the epilogue.

        Args:
            x: `[R, in]`.
            epilogue: What follows the matmul, without the bias of the layer.

        Raises:
            UserError: If the compute dtype of the layer was changed after its kernel was prepacked.

        Example:
            >>> from bert_tf.layers.kernels import Epilogue
            >>> dense = bert_tf.layers.Dense(4)
            >>> dense.build([None, 2])
            >>> dense.apply(tf.ones([3, 2]), Epilogue(activation="gelu")).shape
            TensorShape([3, 4])
        """
        form = self.kernel_impl
        if isinstance(form, PrepackedKernel):
            dtype = form.packed.dtype
            if dtype not in ("bfloat16", self.compute_dtype):
                raise UserError(
                    f"`dtype_policy` must compute in {dtype}, in which the kernel was prepacked. "
                    f"Received: dtype_policy.compute_dtype={self.compute_dtype}. Set it before the "
                    "kernel is prepacked."
                )
        if self.bias is not None:
            epilogue = dataclasses.replace(epilogue, bias=tf.convert_to_tensor(self.bias))
        return form.apply(x, epilogue)

    def feed_forward(
        self, second: "Dense", x: tf.Tensor, activation: Epilogue, norm: Epilogue
    ) -> tf.Tensor:
        """Computes a feed-forward network: `second.apply(self.apply(x, activation), norm)`.

        If both kernels are quantized, or both in bfloat16 and prepacked, and x is the residual of a
        LayerNorm in `norm`, one op computes both layers, with the same bits.

        Example:
            >>> from bert_tf.layers.kernels import Epilogue
            >>> wide, narrow = bert_tf.layers.Dense(8), bert_tf.layers.Dense(2)
            >>> wide.build([None, 2]), narrow.build([None, 8])
            (None, None)
            >>> x, norm = tf.ones([3, 2]), bert_tf.layers.ResidualLayerNorm()
            >>> norm.build([None, 2])
            >>> norm = Epilogue(layer_norm=norm, residual=x)
            >>> wide.feed_forward(narrow, x, Epilogue(activation="gelu"), norm).shape
            TensorShape([3, 2])
        """
        one, other = self.kernel_impl, second.kernel_impl
        is_fused = one.fuses_feed_forward and other.fuses_feed_forward and type(one) is type(other)
        is_feed_forward = norm.residual is x and norm.layer_norm is not None
        has_op = (
            ACTIVATIONS[activation.activation].with_bias is not None and not activation.is_gated
        )
        has_op &= self.use_bias and second.use_bias
        is_feed_forward = is_feed_forward and norm.layer_norm.beta is not None
        if not (is_fused and is_feed_forward and has_op):
            return second.apply(self.apply(x, activation), norm)  # [R, H] -> [R, F] -> [R, H]
        biases = (tf.convert_to_tensor(layer.bias) for layer in (self, second))
        activation, norm = (
            dataclasses.replace(epilogue, bias=bias)
            for epilogue, bias in zip((activation, norm), biases, strict=True)
        )
        return one.feed_forward(other, x, activation, norm)

    def call(self, x):
        return self.apply(x, Epilogue())

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes the kernel and adds a trainable low-rank matrix A @ B to it, as Keras does.

        A is `[in, rank]`, B `[rank, units]`, and the factor `lora_alpha / rank`; None means `rank`.

        Raises:
            UserError: If the layer already has LoRA, if its kernel is prepacked or quantized, or if
                `rank` is below 1.

        Reference: Hu et al. 2021 (arXiv 2106.09685); `keras.layers.Dense.enable_lora`.
        """
        self._require_float_kernel("given LoRA")
        require(rank >= 1, "must be at least 1", UserError, rank=rank)
        with keras_compat.unlocked(self):
            self.lora_kernel_a = self.add_weight(
                name="lora_kernel_a", shape=[self.kernel.shape[0], rank], initializer="he_uniform"
            )
            self.lora_kernel_b = self.add_weight(
                name="lora_kernel_b", shape=[rank, self.units], initializer="zeros"
            )
        self.kernel.trainable = False
        scale = 1.0 if lora_alpha is None else lora_alpha / rank
        self.kernel_impl = LoraKernel(self.kernel, self.lora_kernel_a, self.lora_kernel_b, scale)

    def merge_lora(self) -> None:
        """Adds A @ B to the kernel and removes A and B. Does nothing without LoRA."""
        if not isinstance(self.kernel_impl, LoraKernel):
            return
        self.kernel_impl.merge()
        for name in ("lora_kernel_a", "lora_kernel_b"):
            keras_compat.remove_variable(self, name)
        self.kernel_impl = FloatKernel(self.kernel)

    def replace(self, kernel: tf.Tensor, bias: tf.Tensor | None) -> None:
        """Replaces kernel and bias, float32 `[in, units]` and `[units]`, by others of any shape.

        The new variables have the old paths. Functions that were traced before and optimizers that
        were built before still use the old variables.
        """
        names = ("kernel", "bias") if self.use_bias else ("kernel",)
        trainable = [getattr(self, name).trainable for name in names]
        # All are replaced, in this order, because Keras numbers the variables in a file.
        for name in names:
            keras_compat.remove_variable(self, name)
        self.units = kernel.shape[1]
        with keras_compat.unlocked(self):
            self.build([None, kernel.shape[0]])
        for name, values, is_trainable in zip(names, (kernel, bias), trainable):
            getattr(self, name).assign(values)
            getattr(self, name).trainable = is_trainable

    def pack(self, dtype: str | None = None) -> None:
        """Replaces the kernel permanently by a prepacked one for `bert_tf.ops.fused_dense`.

        The layer can then be used for inference only. The original kernel is removed, so that it
        cannot be changed without the prepacked one, which is "bfloat16" or in the compute dtype.

        Raises:
            UserError: If the layer has LoRA, or if its kernel is already prepacked or quantized.
        """
        self._require_float_kernel("prepacked")
        form = self.prepacked(self.compute_dtype if dtype is None else dtype)
        keras_compat.replace_variable(self, "kernel", {"packed_kernel": form.packed})
        self.kernel_impl = dataclasses.replace(form, packed=self.packed_kernel)

    def prepacked(self, dtype: str) -> PrepackedKernel:
        """Returns a prepacked copy of the kernel in the dtype; the layer stays as it is."""
        kernel = tf.cast(tf.convert_to_tensor(self.kernel), dtype)
        return PrepackedKernel(ops.pack_dense(kernel), tuple(kernel.shape))

    def quantize(
        self,
        mode: str = "int8",
        type_check: bool = True,
        config=None,
        smoothing=None,
        static_scale=None,
    ) -> None:
        """Replaces the kernel by 8-bit integers with one scale per column, for inference only.

        Args:
            mode, config: "int8"; None or the configuration that Keras makes for it.
            type_check: Ignored: subclasses are quantized too. It is an argument of Keras's method.
            smoothing: float32 `[in]`, the factors by which the columns of the input are multiplied
                before they are quantized, and by which the rows of the kernel are divided. None
                means ones.
            static_scale: float32 `[2]`, the scale of the smoothed input and its zero point, an
                integer in [0, 255]. None computes both for each row.

        Raises:
            UserError: If `mode` is not "int8", or if the kernel has LoRA or is already prepacked or
                quantized.

        Reference: `keras.layers.Dense.quantize`; `bert_tf.ops.quantized_dense`.
        """
        require_int8(mode, config)
        self._require_float_kernel("quantized")
        shape = tuple(self.kernel.shape)
        values, scale = ops.quantize_kernel(tf.convert_to_tensor(self.kernel), smoothing)
        kernel = ops.pack_quantized_dense(values, scale, smoothing, static_scale)
        parts = dict(zip(_INT8_VARIABLES, kernel, strict=True))
        if static_scale is None:
            del parts["input_scale"]
        keras_compat.replace_variable(self, "kernel", parts)
        variables = [getattr(self, name) for name in parts]
        self.kernel_impl = Int8Kernel(variables, shape)

    def _require_float_kernel(self, purpose):
        if not isinstance(self.kernel_impl, FloatKernel):
            raise UserError(
                f"`kernel_impl` must be a FloatKernel to be {purpose}. Received: kernel_impl="
                f"{type(self.kernel_impl).__name__}. Call `merge_lora()` first if it has LoRA."
            )

    def save_own_variables(self, store):
        if not isinstance(self.kernel_impl, PrepackedKernel):
            return super().save_own_variables(store)
        # Saved as a plain kernel: a file of weights does not say whether the model was prepacked.
        store["0"] = tf.cast(self.kernel_impl.unpacked(), self.variable_dtype).numpy()
        if self.bias is not None:
            store["1"] = self.bias.numpy()

    def load_own_variables(self, store):
        if not isinstance(self.kernel_impl, PrepackedKernel):
            return super().load_own_variables(store)
        shapes = [tuple(store[name].shape) for name in sorted(store.keys())]
        expected = [self.kernel_impl.shape, (self.units,)][: 1 + self.use_bias]
        if shapes != expected:
            expected = f"have the shapes {expected}: a kernel" + " and a bias" * self.use_bias
            raise user_error(f"The weights of {self.path}", expected, f"shapes={shapes}")
        self.kernel_impl.assign(store["0"][()])
        if self.bias is not None:
            self.bias.assign(store["1"])

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)
