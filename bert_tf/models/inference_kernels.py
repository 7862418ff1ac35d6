"""The forms of a backbone's kernels for inference, and the checks that they require."""

from collections.abc import Collection, Iterable

import tensorflow as tf

from bert_tf.base import hooks
from bert_tf.errors import UserError, user_error
from bert_tf.layers import kernel_choice
from bert_tf.layers.attention.self_attention import BertSelfAttention
from bert_tf.layers.dense import Dense
from bert_tf.layers.kernel_choice import FLOAT32, PLAIN
from bert_tf.layers.kernels import FloatKernel, LoraKernel
from bert_tf.layers.quantization import (
    BFLOAT16,
    DYNAMIC,
    FLOAT,
    INT8,
    STATIC,
    Quantization,
    require_int8,
)
from bert_tf.ops import native

AUTO = "auto"
PRECISIONS = (AUTO, FLOAT32, BFLOAT16, INT8)


class InferenceKernels:
    """A part of `BertBackbone`: prepacked and 8-bit kernels.

    Attributes:
        is_prepacked: Whether kernels of the model are prepacked: those of the encoder, or of
            another part, such as a decoder.
        quantization: The arguments of a `bert_tf.layers.Quantization`, or None.
    """

    is_prepacked = False
    quantization = None

    def optimize_for_inference(self, precision: str = AUTO, **quantization) -> str:
        """Makes the model faster for inference. It cannot be trained afterwards.

        The encoder's matmuls compute in the precision, and with "bfloat16" also those of the
        attention of packed tokens. The residual connections, LayerNorm, the softmax and everything
        outside the encoder stay in the model's compute dtype. This calls `prepack_for_inference` or
        `quantize`, which have more options.

        Args:
            precision: "float32" changes only rounding errors. "bfloat16" needs half the memory
                and, if the processor has AVX512-BF16, little more than half the time; otherwise it
                is about as fast as float32. "int8" needs a quarter of the memory and less time, and
                loses some accuracy. "auto" measures blocks of the encoder, which takes a few
                seconds, and picks what is fastest here and for no size slower than the plain model
                (by over a tenth, which may be noise): "float32", "bfloat16" if the processor has
                AVX512-BF16, or the model as it is. It logs the table and measures once per size.
            **quantization: Further arguments of `quantize`, for "int8" only.

        Returns:
            The precision: "float32", "bfloat16" or "int8". If "auto" leaves the model as it is,
            this is "float32", and `is_prepacked` is False.

        Raises:
            UserError: If the precision is unknown or does not take the arguments, or for the
                reasons of `quantize` and `prepack_for_inference`.

        Example:
            >>> backbone = bert_tf.BertBackbone.from_pretrained("bert-base/")
            >>> backbone.optimize_for_inference("bfloat16")
            'bfloat16'
            >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> model.optimize_for_inference("int8", calibration=["A quiet film.", "No."])
            'int8'
        """
        if precision not in PRECISIONS:
            raise UserError(f"`precision` must be one of {PRECISIONS}. Received: {precision=}")
        if quantization and precision != INT8:
            expected = f"be 'int8' with the argument `{next(iter(quantization))}`"
            raise user_error("`precision`", expected, f"{precision=}")
        backbone = getattr(self, "backbone", self)
        backbone.require_native_ops("optimized for inference")
        if precision == AUTO:
            backbone.require_merged("prepacked")
            precision = kernel_choice.choose(backbone.encoder.blocks)
            if precision == PLAIN:
                return FLOAT32
        if precision == INT8:
            self.quantize(INT8, **quantization)
        self.prepack_for_inference(BFLOAT16 if precision == BFLOAT16 else None)
        return precision

    def prepack_for_inference(self, dtype: str | None = None) -> None:
        """Prepacks the encoder's kernels for `bert_tf.ops.fused_dense`, for faster inference.

        Only the prepacked form of the kernels is kept. Training the model or saving it as a
        checkpoint then raises an error: load the model again. `save_weights` and `load_weights`
        work as before, with kernels that are rounded to the dtype. Quantized kernels are prepacked
        already; this prepacks the layers that `quantize(skip=…)` left in floating point.

        Args:
            dtype: The dtype of the prepacked kernels, and of the matrix products in the attention
                of packed tokens: "bfloat16", or None for the compute dtype.

        Raises:
            UserError: If `dtype` is something else, the native `fused_dense` is not available, or a
                GPU is visible, where it does not run.
        """
        dense, attention = self.encoder.dense_layers(), self.encoder.attention_layers()
        self.prepack_layers(dense.values(), attention.values(), dtype)

    def prepack_layers(
        self, dense: Collection[Dense], attention: Collection[BertSelfAttention], dtype: str | None
    ) -> None:
        """Does what `prepack_for_inference` does with layers of the backbone or a task around it.

        `attention` computes its matrix products in `dtype`.

        Raises:
            UserError: See `prepack_for_inference`.
        """
        if dtype not in (None, BFLOAT16):
            raise UserError(f"`dtype` must be None or 'bfloat16'. Received: dtype={dtype!r}")
        if not any(isinstance(layer.kernel_impl, FloatKernel | LoraKernel) for layer in dense):
            return
        self.require_native_ops("prepacked")
        self.require_merged("prepacked")
        for layer in dense:
            if isinstance(layer.kernel_impl, FloatKernel):
                layer.pack(dtype)
        if dtype == BFLOAT16:
            for layer in attention:
                layer.precision = BFLOAT16
        self.is_prepacked = True

    def require_native_ops(self, purpose: str) -> None:
        """Raises `UserError` unless the native ops of a CPU are active."""
        if not native.use_native(runs_on_gpu=False):
            raise UserError(
                f"A model must have the native ops and a CPU to be {purpose}. Received: the "
                "TensorFlow ops are active, or a GPU is visible. Build the native ones (`make "
                "ops`) and hide the GPU (CUDA_VISIBLE_DEVICES=), or leave the model as it is."
            )

    def quantize(
        self,
        mode: str = "int8",
        config=None,
        calibration: Iterable[dict[str, tf.Tensor]] | None = None,
        attention: str = FLOAT,
        skip: Iterable[str] = (),
        activations: str = DYNAMIC,
        **kwargs,
    ) -> None:
        """Turns kernels and word embeddings into 8-bit integers, for smaller and faster inference.

        The four dense layers of every block compute with `bert_tf.ops.quantized_dense`: kernels
        have one scale per column; activations have one scale and zero point per row, computed at
        run time, or one per layer, from calibration. The word embeddings have one scale per word.
        Everything else stays in floating point. To undo it, load the model again.

        Args:
            mode: "int8".
            config: None or the configuration that Keras makes for `mode`.
            calibration: Token dictionaries, from text like that of the application. If it is more
                accurate, large values in single columns of a layer's input are moved into its
                kernel. See `bert_tf.adapt.calibration`.
            attention: "int8" also computes the attention of packed tokens in 8-bit integers, which
                is faster from about 50 tokens on and adds an error. "bfloat16" computes its matrix
                products in bfloat16: 1.5 times as fast with AVX512-BF16, with a smaller error.
                "float" does neither.
            skip: The layers that stay in floating point, as in `bert_tf.layers.Quantization`.
                `bert_tf.adapt.quantization_errors` returns the error of each.
            activations: "static" uses one scale and zero point per layer, which needs
                `calibration`. It is faster and less accurate than "dynamic".
            **kwargs: Arguments of Keras's method; `type_check` has no effect.

        Raises:
            UserError: For another mode or argument, a name in `skip` that no layer has, a model
                with LoRA, or one that is quantized or prepacked already.

        Example:
            >>> backbone = bert_tf.BertBackbone.from_pretrained("bert-base/")
            >>> backbone.quantize("int8")
            >>> backbone.save_pretrained("bert-base-int8/", format="bert_tf")  # a quarter in size

        Reference: `keras.Model.quantize`.
        """
        require_int8(mode, config)
        quantization = Quantization(mode, attention, skip, activations)
        if activations == STATIC and calibration is None:
            raise UserError(
                "`calibration` must be texts or token dictionaries if `activations` is 'static': "
                "the scales come from them. Received: calibration=None"
            )
        if set(kwargs) - {"type_check"}:
            expected = "be `mode`, `calibration`, `attention`, `skip` and `activations`"
            raise user_error("The arguments", expected, f"also {', '.join(sorted(kwargs))}")
        self.require_kernels("quantized")
        self.require_merged("quantized")
        quantization.quantized(self._quantizable())  # mistakes are found before any work
        scalings = {}
        if calibration is not None:
            scalings = hooks.calibrate(self, calibration, activations)
        self._quantize(quantization, scalings)

    def _quantizable(self):
        """Returns the layers that `quantize` quantizes, by their paths."""
        return {**self.encoder.dense_layers(), **self.encoder.attention_layers()}

    def _quantize(self, quantization, scalings):
        """Quantizes; layers without a scaling get one that a file's values will replace."""
        layers = self._quantizable()
        is_static = quantization.activations == STATIC
        to_be_loaded = None, [1.0, 0.0] if is_static else None
        self.embeddings.quantize(quantization.mode)
        for path in quantization.quantized(layers):
            layer = layers[path]
            if isinstance(layer, Dense):
                smoothing, static_scale = scalings.get(layer, to_be_loaded)
                layer.quantize(quantization.mode, smoothing=smoothing, static_scale=static_scale)
            else:
                layer.precision = quantization.attention
        self.replace_option("quantization", quantization.to_json())

    def require_merged(self, purpose: str) -> None:
        """Raises `UserError` if the model has LoRA."""
        forms = [dense.kernel_impl for dense in self.encoder.dense_layers().values()]
        if any(isinstance(form, LoraKernel) for form in forms):
            received = "a model with LoRA. Call its `merge_lora()` first."
            raise user_error("The model", f"have no LoRA to be {purpose}", received)

    def require_not_prepacked(self, purpose: str) -> None:
        """Raises `UserError` if the model was prepacked."""
        if self.is_prepacked:
            received = "a model with prepacked kernels. Do that first, or load the model again."
            raise user_error("The model", f"not be prepacked to be {purpose}", received)

    def require_kernels(self, purpose: str) -> None:
        """Raises `UserError` if the model was prepacked or quantized: `purpose` needs kernels."""
        self.require_not_prepacked(purpose)
        if self.quantization is not None:
            raise UserError(
                f"The model must not be quantized to be {purpose}. Received: a model with "
                f"{self.quantization} kernels. Do that first, or load the model again."
            )
