"""BERT without a head: token ids in, vectors out."""

import dataclasses
import os
from collections.abc import Iterable, Mapping

import keras
import tensorflow as tf

from bert_tf import hooks, ops
from bert_tf.config import BertConfig
from bert_tf.deprecation import renamed_method, warn_renamed
from bert_tf.errors import UserError
from bert_tf.layers.dense import Dense
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder import BertEncoder
from bert_tf.layers.initial_weights import zeros_if_loading
from bert_tf.layers.kernels.float_kernel import FloatKernel
from bert_tf.layers.kernels.int8_kernel import Int8Kernel
from bert_tf.layers.kernels.lora_kernel import LoraKernel
from bert_tf.layers.kernels.prepacked_kernel import PrepackedKernel
from bert_tf.layers.pooling import BertPooler
from bert_tf.layers.prefix_attention import prefix_mask
from bert_tf.layers.quantization import DYNAMIC, FLOAT, STATIC, Quantization, require_int8
from bert_tf.layers.token_layout import TokenLayout, needs_static_shapes
from bert_tf.models.inference_precision import AUTO, BFLOAT16, optimize_for_inference
from bert_tf.models.keras_files import KerasFiles
from bert_tf.models.token_inputs import checked_token_inputs
from bert_tf.models.traced_weights import RetracingModel
from bert_tf.ops import native
from bert_tf.pruned_heads import checked_pruned_heads


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBackbone(KerasFiles, RetracingModel):
    """The BERT encoder with its embeddings and pooler.

    Args:
        config: `BertConfig` or the dictionary of its `to_dict`.
        num_encoder_layers: Build only the first k blocks; None builds all.
        padding_free: True computes on real tokens only, False on all `B * T` positions, with the
            same numbers. "auto" is True with the native attention, except under XLA.
        causal: Whether a token attends only to itself and to earlier tokens.
        gradient_checkpointing: Whether training keeps only the input of every block and computes
            the rest again: about a third more time, a fraction of the memory, the same numbers.
        attention_window: As in `BertConfig`, for time and memory that grow with T, not T². None
            takes the configuration's.
        global_tokens: As in `BertConfig`. None takes the configuration's.
        quantization: "int8", a `bert_tf.layers.Quantization`, or a dictionary of its arguments,
            makes a quantized model, whose values are loaded afterwards.
        recompute: The old name of `gradient_checkpointing`.

    Call arguments:
        inputs: A dictionary of `token_ids` int32 `[B, T]` and, optionally, `segment_ids` int32
            `[B, T]` (default: zeros) and `padding_mask` bool `[B, T]`, True for real tokens
            (default: `token_ids != config.pad_token_id`). Padding may be anywhere. If a row holds
            several sequences, each in one piece: `sequence_ids` int32 `[B, T]` (1, 2, ...; no
            attention from one to another), `positions` int32 `[B, T]` (from 0 in each) and
            `sequence_starts` int32 `[B, S]`, the column of each `[CLS]`. `head_mask` float
            `[B, L, N]`, pruned heads included, is multiplied with the output of every head.
        output_hidden_states: Whether to return the embeddings and the output of every block.
        output_attentions: Whether to return every block's attention probabilities.
        output_word_embeddings: Whether to return the word embeddings, for a head that shares them.
        causal: Replaces the constructor's.
        prefix_lm: Whether the tokens before the first one with a segment id above 0, the prefix,
            attend to the prefix, and the others to it and to the tokens up to themselves.

    Returns:
        A dictionary: `sequence_output` `[B, T, H]`, `pooled_output` `[B, H]` (of the first
        position; with `sequence_starts` `[B, S, H]`), on request `hidden_states`, a list of L + 1
        times `[B, T, H]`, `attentions`, a list of L times `[B, N, T, T]` (without pruned heads),
        and `word_embeddings` `[V, H]`. Vectors at padded positions are zeros.

    Raises:
        UserError: If the inputs are not as described; in a running graph, that is a
            `tf.errors.InvalidArgumentError` with the same message.

    Example:
        >>> config = BertConfig(vocab_size=99, hidden_size=32, num_attention_heads=2)
        >>> outputs = BertBackbone(config)({"token_ids": tf.constant([[5, 6, 7, 0]])})
        >>> outputs["sequence_output"].shape
        TensorShape([1, 4, 32])

    Reference: Devlin et al. 2019 (arXiv 1810.04805); google-research/bert `BertModel`; Beltagy et
    al. 2020 (arXiv 2004.05150) for sparse attention, without extra projections for global tokens.
    """

    def __init__(
        self,
        config: BertConfig | dict,
        num_encoder_layers: int | None = None,
        padding_free: bool | str = "auto",
        causal: bool = False,
        gradient_checkpointing: bool = False,
        attention_window: int | None = None,
        global_tokens: int | None = None,
        quantization: Quantization | dict | str | None = None,
        recompute: bool | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if recompute is not None:
            warn_renamed("BertBackbone(recompute=…)", "BertBackbone(gradient_checkpointing=…)")
            gradient_checkpointing = recompute
        quantization = Quantization.of(quantization)
        config = config if isinstance(config, BertConfig) else BertConfig(**config)
        changes = {"attention_window": attention_window, "global_tokens": global_tokens}
        if num_encoder_layers is not None:
            if not 1 <= num_encoder_layers <= config.num_hidden_layers:
                raise UserError(
                    f"`num_encoder_layers` must be in [1, {config.num_hidden_layers}], the number "
                    f"of blocks. Received: {num_encoder_layers=}"
                )
            pruned = config.pruned_heads
            changes["num_hidden_layers"] = num_encoder_layers
            changes["pruned_heads"] = {b: pruned[b] for b in pruned if b < num_encoder_layers}
        changes = {name: value for name, value in changes.items() if value is not None}
        config = dataclasses.replace(config, **changes)
        if padding_free not in ("auto", True, False):
            raise UserError(
                f"`padding_free` must be 'auto', True or False. Received: {padding_free!r}"
            )
        self.config = config
        self.num_encoder_layers = num_encoder_layers
        self.padding_free = padding_free
        self.causal = causal
        self.gradient_checkpointing = gradient_checkpointing
        self.attention_window = config.attention_window
        self.global_tokens = config.global_tokens
        self.is_prepacked = False
        self.quantization = None
        dtype, width, deviation = self.dtype_policy, config.hidden_size, config.initializer_range
        self.embeddings = BertEmbeddings(config, dtype=dtype, name="embeddings")
        self.encoder = BertEncoder(config, gradient_checkpointing, dtype=dtype, name="encoder")
        self.pooler = BertPooler(width, deviation, dtype=dtype, name="pooler")
        self.build()
        if quantization is not None:
            if num_encoder_layers is not None:
                quantization = quantization.of_blocks(num_encoder_layers)
            self._quantize(quantization, scalings={})

    def build(self, input_shape=None):
        with zeros_if_loading():
            for layer in (self.embeddings, self.encoder):
                if not layer.built:
                    layer.build()
        if not self.pooler.built:  # a checkpoint may have none
            self.pooler.build()
        self.built = True

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, **options) -> "BertBackbone":
        """Builds the backbone of a checkpoint and loads its weights.

        Args:
            path: A directory of Hugging Face, google-research/bert (TF1), keras-hub, tf-models or
                this package, or a name on the Hugging Face Hub; see docs/checkpoints.md.
            **options: Arguments of the constructor other than `config`.

        Raises:
            CheckpointError: If a tensor is missing, has another shape, or a file is unreadable.
        """
        return hooks.load_backbone(path, backbone_class=cls, **options)

    def save_pretrained(self, directory: str | os.PathLike, format: str = "huggingface") -> None:
        """Writes weights and configuration.

        Args:
            directory: Created if missing; the files in it are replaced together, atomically.
            format: "huggingface" (for its `BertModel`), "tf1" (google-research/bert) or "bert_tf",
                the only one for a quantized model.

        Raises:
            UserError: If the directory holds a checkpoint of another format, the format cannot hold
                the model, or the model is prepacked.
        """
        self.require_not_prepacked("saved as a checkpoint")
        hooks.save_model(self, directory, format)

    def call(
        self,
        inputs,
        training=False,
        output_hidden_states=False,
        output_attentions=False,
        output_word_embeddings=False,
        causal=None,
        prefix_lm=False,
    ):
        inputs = checked_token_inputs(inputs, self.config)
        token_ids = inputs["token_ids"]
        segment_ids = inputs.get("segment_ids", tf.zeros_like(token_ids))
        columns = tf.range(tf.shape(token_ids)[1])
        positions = inputs.get("positions", tf.broadcast_to(columns, tf.shape(token_ids)))  # [B, T]
        causal = self.causal if causal is None else causal
        layout = self._layout(inputs, causal, prefix_lm, output_attentions)
        ids, segments, places = map(layout.to_rows, (token_ids, segment_ids, positions))  # -> [R]
        embedded, word_embeddings = self.embeddings(
            ids, segment_ids=segments, positions=places, training=training
        )
        states, attentions = self.encoder(
            embedded,
            layout=layout,
            training=training,
            return_probabilities=output_attentions,
            head_mask=inputs.get("head_mask"),
        )
        sequence_output = layout.to_batch(states[-1])  # [R, H] -> [B, T, H]
        pooled_output = self._pooled(sequence_output, inputs.get("sequence_starts"))
        outputs = {"sequence_output": sequence_output, "pooled_output": pooled_output}
        if output_hidden_states:
            outputs["hidden_states"] = [layout.to_batch(rows) for rows in (embedded, *states)]
        if output_attentions:
            outputs["attentions"] = attentions
        if output_word_embeddings and word_embeddings is None:
            word_embeddings = self.embeddings.dequantized_words()
        if output_word_embeddings:
            outputs["word_embeddings"] = word_embeddings
        return outputs

    def _pooled(self, sequence_output, starts):
        """`[B, T, H]` -> `[B, H]`, or with starts `[B, S]` -> `[B, S, H]`."""
        if starts is None:
            return self.pooler(sequence_output[:, 0])
        first = tf.gather(sequence_output, starts, batch_dims=1)  # [B, S, H]
        pooled = self.pooler(tf.reshape(first, [-1, first.shape[-1]]))  # [B * S, H]
        return tf.reshape(pooled, tf.concat([tf.shape(starts), [pooled.shape[-1]]], axis=0))

    def _layout(self, inputs, causal, prefix_lm, output_attentions) -> TokenLayout:
        mask, sequence_ids = self.padding_mask_of(inputs), inputs.get("sequence_ids")
        attention = {
            "causal": causal,
            "window_size": self.attention_window,
            "num_global_tokens": self.global_tokens,
        }
        if prefix_lm:
            attention.update(causal=True, prefix_mask=prefix_mask(inputs, mask))
        if self.packs_tokens() and not output_attentions:
            if not needs_static_shapes():
                return TokenLayout.packed(mask, sequence_ids, **attention)
            # The numbers of sequences that ids tell apart and of tokens of prefixes are not static.
            if sequence_ids is None and not prefix_lm:
                apart = not native.has_gpu_kernels()
                return TokenLayout.packed_in_place(mask, apart, **attention)
        return TokenLayout.padded(mask, sequence_ids, **attention)

    def packs_tokens(self) -> bool:
        """Returns whether the model computes on real tokens only; see `padding_free`."""
        auto = self.padding_free == "auto"
        return ops.active_backend() == "native" if auto else self.padding_free

    def padding_mask_of(self, inputs: dict) -> tf.Tensor:
        """Returns the mask that comes with the inputs, or what the ids say: bool `[B, T]`."""
        if inputs.get("padding_mask") is None:
            return tf.not_equal(inputs["token_ids"], self.config.pad_token_id)
        return tf.cast(inputs["padding_mask"], tf.bool)

    freeze_for_inference = renamed_method("freeze_for_inference", "prepack_for_inference")

    def __getattr__(self, name):  # no properties: Keras reads all of them when it saves or loads
        new = {"is_frozen": "is_prepacked", "recompute": "gradient_checkpointing"}.get(name)
        if new is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warn_renamed(name, new)
        return getattr(self, new)

    def optimize_for_inference(self, precision: str = AUTO, **quantization) -> str:
        """Makes the model faster, for good and for inference only.

        The encoder's matmuls compute in the precision, and with "bfloat16" also those of the
        attention of packed tokens. The residual connections, LayerNorm, the softmax and all that is
        outside of the encoder stay in the model's compute dtype. What is done is
        `prepack_for_inference` or `quantize`, which have more options.

        Args:
            precision: "float32" changes nothing but rounding errors. "bfloat16" needs half the
                memory, and little more than half the time where the processor has AVX512-BF16;
                elsewhere it is about as fast as float32. "int8" needs a quarter of the memory and
                less time; it loses some accuracy. "auto" is "bfloat16" where the processor has it,
                else "float32", and logs which it is.
            **quantization: Further arguments of `quantize`, for "int8" only.

        Returns:
            The precision: "float32", "bfloat16" or "int8".

        Raises:
            UserError: If the precision is unknown or does not take the arguments, as `quantize`, or
                as `prepack_for_inference`.

        Example:
            >>> backbone = bert_tf.BertBackbone.from_pretrained("bert-base/")
            >>> backbone.optimize_for_inference("bfloat16")
            'bfloat16'
        """
        return optimize_for_inference(self, precision, quantization)

    def prepack_for_inference(self, dtype: str | None = None) -> None:
        """Prepacks the encoder's kernels for `bert_tf.ops.fused_dense`: faster, for inference only.

        The kernels are kept in their prepacked form only. What trains the model or saves it as a
        checkpoint then raises an error: load the model again. `save_weights` and `load_weights`
        work as before, with kernels that are rounded to the dtype. Quantized kernels are prepacked
        already; the layers that `quantize(skip=…)` left are prepacked here.

        Args:
            dtype: The dtype of the prepacked kernels, and of the matrix products in the attention
                of packed tokens: "bfloat16", or None for the compute dtype.

        Raises:
            UserError: If `dtype` is something else, the native `fused_dense` is not available, or a
                GPU is visible, where it does not run.
        """
        if dtype not in (None, BFLOAT16):
            raise UserError(f"`dtype` must be None or 'bfloat16'. Received: dtype={dtype!r}")
        forms = [dense.kernel_form for dense in self.encoder.dense_layers().values()]
        if all(isinstance(form, PrepackedKernel | Int8Kernel) for form in forms):
            return
        self.require_native_ops("prepacked")
        self.require_merged("prepacked")
        for dense in self.encoder.dense_layers().values():
            if isinstance(dense.kernel_form, FloatKernel):
                dense.pack(dtype)
        if dtype == BFLOAT16:
            for attention in self.encoder.attention_layers().values():
                attention.precision = BFLOAT16
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
        """Turns kernels and word embeddings into 8-bit integers: smaller, faster, only forward.

        The four dense layers of every block compute with `bert_tf.ops.quantized_dense`: kernels
        with one scale per column, activations with one scale and zero point per row, found at run
        time, or one per layer, found by calibration. The word embeddings have one scale per word.
        All else stays in floating point. There is no way back: load the model again.

        Args:
            mode: "int8".
            config: None or the configuration that Keras makes for `mode`.
            calibration: Token dictionaries, from text like that of the application. Where that is
                more accurate, large values in single columns of a layer's input are moved into its
                kernel. See `bert_tf.compression.calibration`.
            attention: "int8" also computes the attention of packed tokens in 8-bit integers:
                faster from about 50 tokens on, with an error of its own. "bfloat16" multiplies
                there in bfloat16: with AVX512-BF16 1.5 times as fast, with a smaller error. "float"
                does neither.
            skip: The layers that stay in floating point, as in `bert_tf.layers.Quantization`.
                `bert_tf.compression.quantization_errors` says which of them would lose most.
            activations: "static" uses one scale and zero point per layer, which needs
                `calibration`: faster and less accurate than "dynamic".
            **kwargs: Of Keras's, `type_check` has no effect.

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
            raise UserError(
                "The arguments must be `mode`, `calibration`, `attention`, `skip` and "
                f"`activations`. Received: also {', '.join(sorted(kwargs))}"
            )
        self.require_kernels("quantized")
        self.require_merged("quantized")
        quantization.quantized(self._quantizable())  # mistakes are found before any work
        scalings = {}
        if calibration is not None:
            scalings = hooks.calibrate(self, calibration, activations)
        self._quantize(quantization, scalings)

    def _quantizable(self):
        """Returns the layers that compute in 8-bit integers after `quantize`, by their paths."""
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
        self.quantization = quantization.to_json()

    def prune_heads(self, heads: Mapping[int, Iterable[int]]) -> None:
        """Removes attention heads with their weights, for good: smaller and faster.

        The results are those of `head_mask` with zeros for these heads. For a model around this
        backbone, call the model's own method.

        Args:
            heads: Block numbers to the heads to remove, both counted from 0 and as before any
                pruning. `bert_tf.compression.least_important_heads` chooses some.

        Raises:
            UserError: If a number is out of range, a block would be left without a head, or the
                model is prepacked, quantized or has LoRA.

        Example:
            >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
            >>> backbone.prune_heads({0: [1, 3], 5: [0]})
            >>> backbone.config.pruned_heads
            {0: (1, 3), 5: (0,)}

        Reference: Michel et al. 2019 (arXiv 1905.10650); `transformers`' `prune_heads`.
        """
        self.require_kernels("pruned")
        self.require_merged("pruned")
        config = self.config
        pruned = checked_pruned_heads(heads, config.num_hidden_layers, config.num_attention_heads)
        for block, before in config.pruned_heads.items():
            pruned[block] = {*before, *pruned.get(block, ())}
        config = dataclasses.replace(config, pruned_heads=pruned)
        with self.distribute_strategy.scope():
            self.encoder.prune_heads(config)
        self.config = config

    def require_merged(self, purpose: str) -> None:
        """Raises `UserError` if the model has LoRA."""
        forms = [dense.kernel_form for dense in self.encoder.dense_layers().values()]
        if any(isinstance(form, LoraKernel) for form in forms):
            raise UserError(
                f"The model must have no LoRA to be {purpose}. Received: a model with LoRA. Call "
                "its `merge_lora()` first."
            )

    def require_not_prepacked(self, purpose: str) -> None:
        """Raises `UserError` if the model was prepacked."""
        if self.is_prepacked:
            raise UserError(
                f"The model must not be prepacked to be {purpose}. Received: a model with "
                "prepacked kernels. Do that first, or load the model again."
            )

    def require_kernels(self, purpose: str) -> None:
        """Raises `UserError` if the model was prepacked or quantized: `purpose` needs kernels."""
        self.require_not_prepacked(purpose)
        if self.quantization is not None:
            raise UserError(
                f"The model must not be quantized to be {purpose}. Received: a model with "
                f"{self.quantization} kernels. Do that first, or load the model again."
            )

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if "recompute" in config:  # of a file of an older version
            config["gradient_checkpointing"] = config.pop("recompute")
        return cls(**config)

    def get_config(self):
        self.require_not_prepacked("serialized")
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "config": self.config.to_dict(),
            "num_encoder_layers": self.num_encoder_layers,
            "padding_free": self.padding_free,
            "causal": self.causal,
            "gradient_checkpointing": self.gradient_checkpointing,
            "attention_window": self.attention_window,
            "global_tokens": self.global_tokens,
            **({"quantization": self.quantization} if self.quantization else {}),
        }
