"""BERT without a head: token ids in, vectors out."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import hints, hooks
from bert_tf.base.keras_compat import shown_shapes
from bert_tf.base.keras_files import write_atomically
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.families.pruned_heads import checked_pruned_heads
from bert_tf.inputs.token_inputs import PACKED_PLACES, checked_token_inputs, real_tokens
from bert_tf.layers.attention.self_attention import AttentionProbes
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder import BertEncoder
from bert_tf.layers.initial_weights import zeros_if_loading
from bert_tf.layers.pooling import BertPooler, first_token
from bert_tf.layers.quantization import Quantization
from bert_tf.models.inference_kernels import InferenceKernels
from bert_tf.ops import native
from bert_tf.ops.attention_rule import AttentionRule
from bert_tf.ops.native import needs_static_shapes
from bert_tf.training.model_options import OpeningMethod, fixed_names, option_names, set_option
from bert_tf.training.traced_steps import Traces


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBackbone(InferenceKernels, keras.Model):
    """The BERT encoder with its embeddings and pooler.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        num_encoder_layers: The number of blocks to build, the first ones. None builds all.
        padding_free: True computes on real tokens only, False on all `B * T` positions, with the
            same numbers. "auto" means True with the native attention, except under XLA.
        causal: See `BertConfig`. None means the value of the configuration.
        gradient_checkpointing: Whether training keeps only the input of every block and computes
            the rest again. It takes about a third more time and a fraction of the memory, and gives
            the same numbers.
        attention_window: See `BertConfig`. With a window, time and memory grow with T, not T².
            None means the value of the configuration.
        num_global_tokens, num_random_blocks: See `BertConfig`. None means the value of the
            configuration.
        quantization: Makes a quantized model, whose values are loaded afterwards: "int8", a
            `bert_tf.layers.Quantization`, or a dictionary of its arguments.

    Call arguments:
        inputs: A dictionary of `token_ids` int32 `[B, T]` and, optionally, `segment_ids` int32
            `[B, T]` (default: zeros) and `padding_mask` bool `[B, T]`, True for real tokens
            (default: `token_ids != config.pad_token_id`). Padding may be anywhere. `positions`
            int32 `[B, T]` are by default the columns, as in Hugging Face (with `position_offset`
            they count the real tokens). A row may hold several sequences, each in one piece. It
            then needs `sequence_ids` int32 `[B, T]` (1, 2, ...; no token attends to another
            sequence), `positions` (from 0 in each) and `sequence_starts` int32 `[B, S]`, the column
            of each `[CLS]`. `packed_places` int32 `[R]` are the flat indices of all real tokens and
            then of some padding: only these are computed, which gives XLA a static size. Each row
            must then have a token. For inspection, the output of every head is multiplied by
            `head_mask` float `[B, L, N]`, pruned heads included, and `word_vectors` float `[B, T,
            E]` replace the word embeddings of the ids.
        output_hidden_states: Whether to return the embeddings and the output of every block.
        output_attentions: Whether to return every block's attention probabilities.
        output_word_embeddings: Whether to return the word embeddings, for a head that shares them.
        causal: Replaces the value of the constructor.
        attended_mask: bool `[B, T]`, True for tokens that all tokens of their sequence attend to.
            No token attends to the others; with `causal=True`, each of them attends to itself and
            to earlier ones, as in the target of a prefix language model. None means all tokens.
        observe: A function that each block calls with its `BertSelfAttention`, the queries, keys
            and values `[R, 3, n, D]`, the `TokenLayout` and the `AttentionRule`.

    Returns:
        A dictionary: `sequence_output` `[B, T, H]`, `pooled_output` `[B, H]` (of the first
        real token; with `sequence_starts` `[B, S, H]`) and, on request, `hidden_states`, a list of
        L + 1 tensors `[B, T, H]`, `attentions`, a list of L tensors `[B, N, T, T]` (without pruned
        heads), and `word_embeddings` `[V, E]`. Vectors at padded positions are zeros.

    Raises:
        UserError: If the inputs are not as described; in a running graph, that is a
            `tf.errors.InvalidArgumentError` with the same message.

    Example:
        >>> config = BertConfig(vocab_size=99, hidden_size=32, num_attention_heads=2)
        >>> outputs = BertBackbone(config)({"token_ids": tf.constant([[5, 6, 7, 0]])})
        >>> outputs["sequence_output"].shape
        TensorShape([1, 4, 32])

    Reference: Devlin et al. 2019 (arXiv 1810.04805); google-research/bert `BertModel`; Beltagy et
    al. 2020 (arXiv 2004.05150) for sparse attention, without extra projections for global tokens;
    Zaheer et al. 2020 (arXiv 2007.14062) for random blocks.
    """

    _option_changes = 0
    shared_by: str | None = None  # the option by which a decoder has the same blocks
    built_with = (
        *("config", "num_encoder_layers", "causal", "gradient_checkpointing", "attention_window"),
        *("num_global_tokens", "num_random_blocks", "quantization"),
    )

    config_class = BertConfig

    def __init__(
        self,
        config: BertConfig | dict,
        num_encoder_layers: int | None = None,
        padding_free: bool | str = "auto",
        causal: bool | None = None,
        gradient_checkpointing: bool = False,
        attention_window: int | None = None,
        num_global_tokens: int | None = None,
        num_random_blocks: int | None = None,
        quantization: Quantization | dict | str | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._fixed_options = fixed_names(type(self))
        self._options = option_names(type(self)) | self._fixed_options
        self._traces = Traces()
        quantization = Quantization.of(quantization)
        config = config if isinstance(config, BertConfig) else self.config_class(**config)
        changes = {"attention_window": attention_window, "num_global_tokens": num_global_tokens}
        changes |= {"causal": causal, "num_random_blocks": num_random_blocks}
        if num_encoder_layers is not None:
            most = config.num_hidden_layers
            rule = f"must be in [1, {most}], the number of blocks"
            fits = 1 <= num_encoder_layers <= most
            require(fits, rule, UserError, num_encoder_layers=num_encoder_layers)
            pruned = config.pruned_heads
            changes["num_hidden_layers"] = num_encoder_layers
            changes["pruned_heads"] = {b: pruned[b] for b in pruned if b < num_encoder_layers}
        changes = {name: value for name, value in changes.items() if value is not None}
        config = dataclasses.replace(config, **changes)
        self.config = config
        self.num_encoder_layers = num_encoder_layers
        self.padding_free = padding_free
        self.check_options()
        self.causal = config.causal
        self.gradient_checkpointing = gradient_checkpointing
        self.attention_window = config.attention_window
        self.num_global_tokens = config.num_global_tokens
        self.num_random_blocks = config.num_random_blocks
        window = config.attention_window
        self.attention_rule = AttentionRule(
            causal=config.causal,
            window_size=window,
            num_global_tokens=0 if window is None else config.num_global_tokens,
        )
        self.make_layers()
        dtype, norm = self.dtype_policy, None
        if config.pooler_norm:
            norm = self.embeddings.make_layer_norm("layer_norm")
        self.pooler = BertPooler(
            config.hidden_size,
            config.initializer_range,
            config.pooler_act,
            norm,
            config.classifier_bias,
            dtype=dtype,
            name="pooler",
        )
        self.build()
        if quantization is not None:
            if num_encoder_layers is not None:
                quantization = quantization.of_blocks(num_encoder_layers)
            self._quantize(quantization, scalings={})

    def make_layers(self) -> None:
        """Makes `embeddings` and `encoder`; a subclass may make others."""
        config, dtype = self.config, self.dtype_policy
        self.embeddings = BertEmbeddings(config, dtype=dtype, name="embeddings")
        recomputes = self.gradient_checkpointing
        self.encoder = BertEncoder(config, recomputes, dtype=dtype, name="encoder")

    def __setattr__(self, name, value):
        if name in vars(self).get("_options", ()):
            set_option(self, name, value, super().__setattr__)
        else:
            super().__setattr__(name, value)

    def replace_option(self, name: str, value: Any) -> None:
        """Sets an option after the model was changed to fit it."""
        super().__setattr__(name, value)

    def make_predict_function(self, force=False):
        if self._traces.have_changed(self, "predict", self._option_changes):
            self.predict_function = None
        return super().make_predict_function(force)

    def save(self, filepath: str | os.PathLike, overwrite: bool = True, **options) -> None:
        """Writes a `.keras` file as `keras.Model.save` does, atomically; see `TaskModel.save`."""
        write_atomically(super().save, filepath, overwrite, **options)

    def save_weights(self, filepath: str | os.PathLike, overwrite: bool = True, **options) -> None:
        """Writes a `.weights.h5` file as `keras.Model.save_weights` does, atomically."""
        write_atomically(super().save_weights, filepath, overwrite, **options)

    def check_options(self):
        require_one_of("padding_free", self.padding_free, ("auto", True, False))

    def build(self, input_shape=None):
        with zeros_if_loading():
            for layer in (self.embeddings, self.encoder):
                if not layer.built:
                    layer.build()
        if not self.pooler.built:  # a checkpoint may have none
            self.pooler.build()
        self.built = True

    def summary(self, *args, **kwargs):
        """Prints the layers, as `keras.Model.summary` does, with the shapes of their outputs."""
        size = self.config.hidden_size
        shapes = dict.fromkeys((self.embeddings, self.encoder), (None, None, size))
        with shown_shapes({**shapes, self.pooler: (None, size)}):
            return super().summary(*args, **kwargs)

    def __repr__(self):
        if "config" not in vars(self):
            return super().__repr__()
        sizes = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
        return hints.describe(self, {name: getattr(self.config, name) for name in sizes})

    __getattr__ = hints.missing_attribute
    from_preset = classmethod(hints.refuse_from_preset)

    @OpeningMethod
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

    def save_pretrained(self, directory: str | os.PathLike, format: str | None = None) -> None:
        """Writes weights and configuration.

        Args:
            directory: Created if missing. All files are replaced at once, atomically.
            format: "huggingface" (for its `BertModel`), "tf1" (google-research/bert) or "bert_tf",
                the only one for a quantized model. None means "huggingface", and "auto" means the
                first of "huggingface" and "bert_tf" that can hold the model.

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
        attended_mask=None,
        observe=None,
    ):
        tokens = checked_token_inputs(inputs, self.config)
        layout = self._layout(tokens, output_attentions, attended_mask)
        rule, probes = self.attention_rule, None
        if causal is not None or attended_mask is not None:
            rule = self._rule_of_call(causal, attended_mask, layout)
        if output_attentions or observe is not None or "head_mask" in tokens:
            probabilities = [] if output_attentions else None
            probes = AttentionProbes(tokens.get("head_mask"), probabilities, observe)
        rows, word_embeddings = self.embed(tokens, layout, training)
        states = self.encoder(rows, layout=layout, rule=rule, training=training, probes=probes)
        sequence_output = layout.to_batch(states[-1])  # [R, H] -> [B, T, H]
        if "sequence_starts" in tokens:
            pooled_output = self._pooled_starts(sequence_output, tokens["sequence_starts"])
        elif layout.first_rows is not None:  # XLA then computes no [B, T, H] for a head on these
            pooled_output = self.pooler(tf.gather(states[-1], layout.first_rows))
        else:
            pooled_output = self.pooler(first_token(sequence_output, layout.padding_mask))
        outputs = {"sequence_output": sequence_output, "pooled_output": pooled_output}
        if output_hidden_states:
            outputs["hidden_states"] = [layout.to_batch(rows) for rows in states]
        if output_attentions:
            outputs["attentions"] = probes.probabilities
        if output_word_embeddings:
            if word_embeddings is None:
                word_embeddings = self.embeddings.dequantized_words()
            outputs["word_embeddings"] = word_embeddings
        return outputs

    def embed(self, tokens: dict[str, tf.Tensor], layout: TokenLayout, training: bool):
        """Returns the rows `[R, H]` of the first block, and the word embeddings `[V, E]`."""
        shape = tf.shape(tokens["token_ids"])
        if "positions" in tokens:
            positions = tokens["positions"]
        elif self.config.position_offset:
            counts = tf.cumsum(tf.cast(tokens["padding_mask"], tf.int32), axis=1)
            positions = tf.maximum(counts - 1, 0)
        else:
            positions = tf.broadcast_to(tf.range(shape[1]), shape)  # [B, T]
        others = {}
        if "word_vectors" in tokens:
            others["word_vectors"] = layout.to_rows(tokens["word_vectors"])  # [B, T, E] -> [R, E]
        return self.embeddings(
            layout.to_rows(tokens["token_ids"]),  # [B, T] -> [R]
            segment_ids=layout.to_rows(tokens["segment_ids"]),
            positions=layout.to_rows(positions),
            training=training,
            **others,
        )

    def _pooled_starts(self, sequence_output, starts):
        """Pools the sequences that start in the columns `[B, S]`: `[B, T, H]` -> `[B, S, H]`."""
        first = tf.gather(sequence_output, starts, batch_dims=1)  # [B, S, H]
        pooled = self.pooler(tf.reshape(first, [-1, first.shape[-1]]))  # [B * S, H]
        return tf.reshape(pooled, tf.concat([tf.shape(starts), [pooled.shape[-1]]], axis=0))

    def _layout(self, tokens, output_attentions, attended_mask) -> TokenLayout:
        mask, sequence_ids = tokens["padding_mask"], tokens.get("sequence_ids")
        if not self.packs_tokens() or output_attentions:
            return TokenLayout.padded(mask, sequence_ids)
        places = tokens.get(PACKED_PLACES)
        others = (self.num_random_blocks, attended_mask)
        is_known = not self.config.ignored_token_ids and others == (None, None)
        if places is not None and is_known:
            return TokenLayout.packed_to_size(mask, places)
        if not needs_static_shapes():
            return TokenLayout.packed(mask, sequence_ids)
        # The numbers of sequences (by their ids) and of attended tokens are not static.
        others = (sequence_ids, attended_mask, self.num_random_blocks)
        if any(other is not None for other in others):
            return TokenLayout.padded(mask, sequence_ids)
        return TokenLayout.packed_in_place(mask, isolate_padding=not native.has_gpu_kernels())

    def _rule_of_call(self, causal, attended_mask, layout) -> AttentionRule:
        """Returns the rule of a call that does not take the constructor's."""
        if attended_mask is None:
            return dataclasses.replace(self.attention_rule, causal=causal)
        given = {
            "causal": self.causal and causal is None,
            "attention_window": self.attention_window,
            "num_random_blocks": self.num_random_blocks,
            "relative_attention_num_buckets": self.config.relative_attention_num_buckets,
        }
        for name, value in given.items():
            rule = "must be None or False with `attended_mask`"
            require(not value, rule, UserError, **{name: value})
        attended = layout.to_rows(tf.cast(attended_mask, tf.bool) & layout.padding_mask)  # -> [R]
        return AttentionRule(causal=bool(causal), attended_rows=attended)

    def packs_tokens(self) -> bool:
        """Returns whether the model computes on real tokens only; see `padding_free`."""
        if self.padding_free == "auto":
            return native.used_library(op="varlen_attention") is not None
        return self.padding_free

    def padding_mask_of(self, inputs: dict) -> tf.Tensor:
        """Returns which tokens are neither padding nor ignored, bool `[B, T]`."""
        return real_tokens(inputs, self.config)

    def prune_heads(self, heads: Mapping[int, Iterable[int]]) -> None:
        """Removes attention heads and their weights permanently, for a smaller and faster model.

        The results are those of `head_mask` with zeros for these heads. For a model around this
        backbone, call the model's own method.

        Args:
            heads: The heads to remove from each block, `{block: [heads]}`, both counted from 0 and
                as before any pruning. `bert_tf.adapt.least_important_heads` chooses some.

        Raises:
            UserError: If a number is out of range, a block would be left without a head, a decoder
                shares the weights, or the model is prepacked, quantized or has LoRA.

        Example:
            >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
            >>> backbone.prune_heads({0: [1, 3], 5: [0]})
            >>> backbone.config.pruned_heads
            {0: (1, 3), 5: (0,)}

        Reference: Michel et al. 2019 (arXiv 1905.10650); `transformers`' `prune_heads`.
        """
        self.require_kernels("pruned")
        self.require_merged("pruned")
        if self.shared_by is not None:
            expected = "be False for an encoder that loses heads"
            raise user_error(f"`{self.shared_by}`", expected, f"{self.shared_by}=True")
        config = self.config
        pruned = checked_pruned_heads(heads, config.num_hidden_layers, config.num_attention_heads)
        for block, before in config.pruned_heads.items():
            pruned[block] = {*before, *pruned.get(block, ())}
        config = dataclasses.replace(config, pruned_heads=pruned)
        with self.distribute_strategy.scope():
            self.encoder.prune_heads(config)
        self.replace_option("config", config)

    def get_config(self):
        self.require_not_prepacked("serialized")
        options = {name: getattr(self, name) for name in sorted(option_names(type(self)))}
        if not self.quantization:
            del options["quantization"]
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        return {**options, "name": self.name, "dtype": dtype, "config": self.config.to_dict()}
