"""A dense layer on rows: a 2-D matmul, which TensorFlow fuses with the bias (and GELU)."""

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
from bert_tf.layers.initializers import bert_initializer
from bert_tf.layers.quantization import require_int8


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(keras.layers.Layer):
    """Computes `x @ kernel + bias` on `[R, in]`.

    A MatMul with BiasAdd becomes one oneDNN call. `keras.layers.EinsumDense` uses BatchMatMul,
    which cannot be fused. `matmul` omits the bias, for a caller that adds it in a fused op.

    Args:
        units: Width of the output.
        initializer_range: Standard deviation of the truncated normal initializer of the kernel.

    Call arguments:
        x: `[R, in]`.

    Returns:
        `[R, units]`.

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
        self.is_quantized = False
        self.lora_rank = None
        # A function that `matmul` calls with its input, to observe activations, or None.
        self.observer = None

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=[input_shape[-1], self.units],
            initializer=bert_initializer(self.initializer_range),
        )
        self.bias = self.add_weight(name="bias", shape=[self.units], initializer="zeros")
        self.built = True

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Freezes the kernel and adds a trainable low-rank matrix to it, as Keras does.

        Args:
            rank: The inner dimension r of A `[in, r]` and B `[r, units]`.
            lora_alpha: A @ B is scaled by `lora_alpha / rank`. None means `rank`.

        Raises:
            UserError: If the layer already has LoRA, if its kernel is prepacked or quantized, or if
                `rank` is below 1.

        Reference: Hu et al. 2021 (arXiv 2106.09685); `keras.layers.Dense.enable_lora`.
        """
        if self.lora_rank is not None or self.packed_kernel is not None or rank < 1:
            raise UserError(
                "`rank` must be at least 1, and the kernel must have no LoRA and must not be "
                f"prepacked. Received: rank={rank}, lora_rank={self.lora_rank}, "
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
        """Adds A @ B to the kernel and removes A and B. Does nothing without LoRA."""
        if self.lora_rank is None:
            return
        addition = tf.matmul(
            tf.convert_to_tensor(self.lora_kernel_a), tf.convert_to_tensor(self.lora_kernel_b)
        )
        self.kernel.assign_add(self.lora_alpha / self.lora_rank * addition)
        self._tracker.unlock()
        for name in ("lora_kernel_a", "lora_kernel_b"):
            self._drop(name)
        self.lora_rank = None
        self._tracker.lock()

    def _drop(self, name):
        """Removes a variable from Keras, and from TensorFlow, which would still save it."""
        self._untrack_variable(getattr(self, name))
        self._delete_tracking(name)
        setattr(self, name, None)

    def replace(self, kernel: tf.Tensor, bias: tf.Tensor) -> None:
        """Replaces the kernel and the bias by others, whose shapes may be different.

        The new variables have the old paths. Functions that were traced before and optimizers that
        were built before still use the old variables.

        Args:
            kernel: float32 `[in, units]`.
            bias: float32 `[units]`.
        """
        trainable = self.kernel.trainable, self.bias.trainable
        self._tracker.unlock()
        # Both are replaced, in this order, because Keras numbers the variables in a file.
        self._drop("kernel")
        self._drop("bias")
        self.units = kernel.shape[1]
        self.build([None, kernel.shape[0]])  # locks the tracker again
        self.kernel.assign(kernel)
        self.bias.assign(bias)
        self.kernel.trainable, self.bias.trainable = trainable

    def pack(self) -> None:
        """Replaces the kernel permanently by a prepacked one for `bert_tf.ops.fused_dense`.

        The layer can then be used for inference only. The original kernel is removed, so that it
        cannot be changed without the prepacked one.

        Raises:
            UserError: If the layer has LoRA.
        """
        if self.lora_rank is not None:
            raise UserError(
                "`kernel` must have no LoRA to be prepacked. "
                f"Received: lora_rank={self.lora_rank}. Call `merge_lora()` first."
            )
        packed = ops.pack_dense(tf.cast(tf.convert_to_tensor(self.kernel), self.compute_dtype))
        self.input_units = self.kernel.shape[0]
        self._tracker.unlock()
        self.packed_kernel = self.add_weight(
            name="packed_kernel",
            shape=packed.shape,
            dtype=self.compute_dtype,
            initializer="zeros",
            trainable=False,
        )
        self._drop("kernel")
        self._tracker.lock()
        self.packed_kernel.assign(packed)

    def save_own_variables(self, store):
        if self.packed_kernel is None or self.is_quantized:
            return super().save_own_variables(store)
        # Saved as a plain kernel: a file of weights does not say whether the model was prepacked.
        kernel = ops.unpack_dense(
            tf.convert_to_tensor(self.packed_kernel), self.input_units, self.units
        )
        store["0"] = tf.cast(kernel, self.variable_dtype).numpy()
        store["1"] = self.bias.numpy()

    def load_own_variables(self, store):
        if self.packed_kernel is None or self.is_quantized:
            return super().load_own_variables(store)
        shapes = [tuple(store[name].shape) for name in sorted(store.keys())]
        expected = [(self.input_units, self.units), (self.units,)]
        if shapes != expected:
            raise UserError(
                f"The weights of {self.path} must have the shapes {expected}: a kernel and a bias. "
                f"Received: shapes={shapes}"
            )
        kernel = tf.cast(tf.convert_to_tensor(store["0"][()]), self.compute_dtype)
        self.packed_kernel.assign(ops.pack_dense(kernel))
        self.bias.assign(store["1"])

    def quantize(
        self, mode: str = "int8", type_check: bool = True, config=None, smoothing=None
    ) -> None:
        """Replaces the kernel permanently by 8-bit integers with one scale per column.

        The layer can then be used for inference only.

        Args:
            mode: "int8".
            type_check: Ignored: subclasses are quantized too. It is an argument of Keras's method.
            config: None or the configuration that Keras makes for `mode`.
            smoothing: float32 `[in]`, the factors by which the columns of the input are multiplied
                before they are quantized, and by which the rows of the kernel are divided. None
                means ones.

        Raises:
            UserError: If `mode` is not "int8", or if the kernel has LoRA or is already prepacked or
                quantized.

        Reference: `keras.layers.Dense.quantize`; `bert_tf.ops.quantized_dense`.
        """
        require_int8(mode, config)
        if self.lora_rank is not None or self.packed_kernel is not None:
            raise UserError(
                "`kernel` must have no LoRA and must not be prepacked or quantized yet. Received: "
                f"lora_rank={self.lora_rank}, packed={self.packed_kernel is not None}. "
                "Call `merge_lora()` first if it has LoRA."
            )
        kernel = ops.quantize_kernel(tf.convert_to_tensor(self.kernel), smoothing)
        self.set_quantized_kernel(*kernel, smoothing)

    def set_quantized_kernel(
        self, values: tf.Tensor, scale: tf.Tensor, smoothing: tf.Tensor | None = None
    ) -> None:
        """Replaces the kernel, quantized or not, by a quantized one.

        Args:
            values: int8 `[in, units]`.
            scale: float32 `[units]`, the factor of each column.
            smoothing: float32 `[in]`, the factor of each column of the input. None means ones.
        """
        quantized = ops.pack_quantized_dense(values, scale, smoothing)
        if not self.is_quantized:
            self._tracker.unlock()
            self.packed_kernel = self._integers("packed_kernel", quantized.packed)
            self.kernel_scale = self._floats("kernel_scale", quantized.scale)
            self.kernel_column_sums = self._integers("kernel_column_sums", quantized.column_sums)
            self.input_smoothing = self._floats("input_smoothing", quantized.smoothing)
            self.input_units = self.kernel.shape[0]
            self._drop("kernel")
            self._tracker.lock()
            self.is_quantized = True
        self.packed_kernel.assign(quantized.packed)
        self.kernel_scale.assign(quantized.scale)
        self.kernel_column_sums.assign(quantized.column_sums)
        self.input_smoothing.assign(quantized.smoothing)

    def _floats(self, name, like):
        return self.add_weight(
            name=name,
            shape=like.shape,
            dtype="float32",
            initializer="zeros",
            trainable=False,
            autocast=False,
        )

    def _integers(self, name, like):
        return self.add_weight(
            name=name, shape=like.shape, dtype=like.dtype.name, initializer="zeros", trainable=False
        )

    def quantized_kernel(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the arguments of `set_quantized_kernel`.

        Returns:
            The values, int8 `[in, units]`, the scale, float32 `[units]`, and the smoothing, float32
            `[in]`.
        """
        values = ops.unpack_quantized_dense(
            tf.convert_to_tensor(self.packed_kernel), self.input_units, self.units
        )
        return (
            values,
            tf.convert_to_tensor(self.kernel_scale),
            tf.convert_to_tensor(self.input_smoothing),
        )

    def is_smoothed(self) -> bool:
        """Returns whether the layer is quantized with a smoothing other than ones."""
        return self.is_quantized and bool(
            tf.reduce_any(tf.convert_to_tensor(self.input_smoothing) != 1.0)
        )

    def fused(self, x: tf.Tensor, **epilogue) -> tf.Tensor:
        """Computes `x @ kernel + bias` and an epilogue with a prepacked or quantized kernel.

        Args:
            x: `[R, in]`.
            **epilogue: Further arguments of `bert_tf.ops.fused_dense`.

        Returns:
            `[R, units]`.
        """

        def cast(tensor):
            return None if tensor is None else tf.cast(tensor, self.compute_dtype)

        packed = tf.convert_to_tensor(self.packed_kernel)
        if self.is_quantized:
            operation = ops.quantized_dense
            packed = ops.QuantizedKernel(
                packed,
                tf.convert_to_tensor(self.kernel_scale),
                tf.convert_to_tensor(self.kernel_column_sums),
                tf.convert_to_tensor(self.input_smoothing),
            )
        else:
            operation = ops.fused_dense
        return operation(
            x,
            packed,
            self.units,
            bias=cast(tf.convert_to_tensor(self.bias)),
            **{
                name: cast(value) if name in ("residual", "gamma", "beta") else value
                for name, value in epilogue.items()
            },
        )

    def matmul(self, x: tf.Tensor) -> tf.Tensor:
        """Computes `x @ kernel` without the bias: `[R, in]` -> `[R, units]`."""
        if self.observer is not None:
            self.observer(x)
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
