"""A dense layer on rows: one 2-D matmul, which TensorFlow fuses with the bias (and GELU)."""

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
from bert_tf.layers.initializers import bert_initializer
from bert_tf.layers.quantization import require_int8


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
        self.is_quantized = False
        self.lora_rank = None
        # What `matmul` calls with its input, for those who want to see activations; None: nobody.
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
        for name in ("lora_kernel_a", "lora_kernel_b"):
            self._drop(name)
        self.lora_rank = None
        self._tracker.lock()

    def _drop(self, name):
        """Forgets a variable: in Keras, and in TensorFlow, which would keep it and save it."""
        self._untrack_variable(getattr(self, name))
        self._delete_tracking(name)
        setattr(self, name, None)

    def replace(self, kernel: tf.Tensor, bias: tf.Tensor) -> None:
        """Puts a kernel and a bias of any shapes in the place of those there are.

        They are new variables under the old paths: what was traced before, and an optimizer that
        has begun, know the old ones.

        Args:
            kernel: float32 `[in, units]`.
            bias: float32 `[units]`.
        """
        trainable = self.kernel.trainable, self.bias.trainable
        self._tracker.unlock()
        # Both, in their order: Keras numbers the variables of a file.
        self._drop("kernel")
        self._drop("bias")
        self.units = kernel.shape[1]
        self.build([None, kernel.shape[0]])  # locks the tracker again
        self.kernel.assign(kernel)
        self.bias.assign(bias)
        self.kernel.trainable, self.bias.trainable = trainable

    def pack(self) -> None:
        """Keeps the kernel only as `bert_tf.ops.fused_dense` reads it: for inference, for good.

        The kernel itself is dropped, so there is nothing that could be assigned to and leave the
        packed one behind.
        """
        if self.lora_rank is not None:
            raise UserError("A kernel with LoRA cannot be packed: call `merge_lora()` first.")
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
        # As a plain layer: a file of weights does not say whether the model was frozen.
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
        """Keeps the kernel only as 8-bit integers, a scale a column: for inference, for good.

        Args:
            mode: "int8".
            type_check: Keras's; a subclass is quantized too.
            config: Keras's; taken from the mode.
            smoothing: float32 `[in]`, what the input's columns are multiplied by before they are
                quantized, and the kernel's rows divided by; None for ones.

        Raises:
            UserError: For another mode, if the kernel has LoRA or is packed or quantized already.

        Reference: `keras.layers.Dense.quantize`; `bert_tf.ops.quantized_dense`.
        """
        require_int8(mode, config)
        if self.lora_rank is not None or self.packed_kernel is not None:
            raise UserError(
                "A plain kernel can be quantized, once: call `merge_lora()` first. Received: "
                f"lora_rank={self.lora_rank}, packed={self.packed_kernel is not None}"
            )
        kernel = ops.quantize_kernel(tf.convert_to_tensor(self.kernel), smoothing)
        self.set_quantized_kernel(*kernel, smoothing)

    def set_quantized_kernel(
        self, values: tf.Tensor, scale: tf.Tensor, smoothing: tf.Tensor | None = None
    ) -> None:
        """Replaces the kernel, quantized or not, by int8 `[in, units]` times float32 `[units]`, and
        its rows times float32 `[in]` if given."""
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
        """What `set_quantized_kernel` was given: int8 `[in, units]`, float32 `[units]`, `[in]`."""
        values = ops.unpack_quantized_dense(
            tf.convert_to_tensor(self.packed_kernel), self.input_units, self.units
        )
        return (
            values,
            tf.convert_to_tensor(self.kernel_scale),
            tf.convert_to_tensor(self.input_smoothing),
        )

    def is_smoothed(self) -> bool:
        """Whether the layer is quantized with a smoothing other than ones."""
        return self.is_quantized and bool(
            tf.reduce_any(tf.convert_to_tensor(self.input_smoothing) != 1.0)
        )

    def fused(self, x: tf.Tensor, **epilogue) -> tf.Tensor:
        """`x @ kernel + bias` and what `bert_tf.ops.fused_dense` can do after it; once packed or
        quantized."""

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
        """`x @ kernel` without the bias: `[R, in]` -> `[R, units]`."""
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
