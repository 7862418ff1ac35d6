"""A sequence-to-sequence model: one BERT reads the source, another one writes the target."""

import dataclasses
import os
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base import hooks
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, require, user_error
from bert_tf.families.network_families import BERTS
from bert_tf.inputs.token_inputs import checked_token_inputs, depending_on, require_tensor
from bert_tf.layers.decoder import BertDecoder
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
from bert_tf.tasks.encoder_decoder.preprocessor import DECODER_PADDING_MASK, DECODER_TOKEN_IDS
from bert_tf.tasks.shared.text_generator import TextGenerator


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoderDecoder(TextGenerator, TaskModel):
    """Two BERTs for translation and summarization: an encoder, and a decoder that attends to it.

    `fit` and `evaluate` take pairs of texts, `(sources, targets)`, without labels: the model learns
    to predict each word of a target from the source and the true words before it. `generate` writes
    targets for sources; `predict` returns the logits for given targets.

    Args:
        backbone: The encoder, a `BertBackbone`.
        decoder_config: The `BertConfig` of the decoder, or its `to_dict()`, with the hidden size of
            the encoder. None means the encoder's, with full attention and all heads.
        tie_word_embeddings: Whether the output shares the decoder's word embeddings.
        share_encoder_decoder_weights: Whether encoder and decoder are the same BERT, so that only
            the cross-attention and the output belong to the decoder alone.
        decoder_start_token_id: The first token of the decoder. None means the tokenizer's `[CLS]`.
        eos_token_id: The last token of a target, or a list of tokens that end one, of which the
            model learns to write the first. None means the tokenizer's `[SEP]`.
        tokenizer: See `TaskModel`, for sources and targets.
        max_length: See `TaskModel`, for sources.
        max_target_length: The same for targets.
        generation_config: The `bert_tf.generation.GenerationConfig` that `generate` and an exported
            model use by default, or its fields as a dictionary.

    Call arguments:
        inputs: What the backbone takes for the source, and what the decoder reads:
            `decoder_token_ids` int32 `[B, T]`, the target after the start token, without its end,
            and, optionally, `decoder_padding_mask` bool `[B, T]` (default: `decoder_token_ids !=
            decoder.config.pad_token_id`). Or a tuple of two string tensors `[B]`.

    Returns:
        Logits float32 `[B, T, V]` of the word after each token of the decoder; zeros for padding.

        `fit` on token dictionaries takes these words as labels int32 `[B, T]`, -100 for padding.

    Raises:
        UserError: If the decoder does not fit the encoder or the tokenizer, or a length is out of
            range.

    Example:
        >>> model = bert_tf.BertEncoderDecoder.from_encoder_decoder_pretrained(
        ...     "bert-base/", "bert-base/"
        ... )
        >>> loss = bert_tf.training.SparseCrossentropy(label_smoothing=0.1)
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-4), loss=loss)
        >>> history = model.fit((["a good film", "a bad film"], ["good", "bad"]), verbose=0)
        >>> model.predict((["a good film"], ["good ."])).shape  # of "good", "." and [SEP]
        (1, 3, 64)

    Reference: Rothe et al. 2019 (arXiv 1907.12461); Vaswani et al. 2017 (arXiv 1706.03762).
    """

    def __init__(
        self,
        backbone: BertBackbone,
        decoder_config: BertConfig | dict | None = None,
        tie_word_embeddings: bool = True,
        share_encoder_decoder_weights: bool = False,
        decoder_start_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        tokenizer=None,
        max_length: int | None = None,
        max_target_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        config = _decoder_config(decoder_config, backbone.config)
        self.decoder_config = config
        self.tie_word_embeddings = tie_word_embeddings
        self.share_encoder_decoder_weights = share_encoder_decoder_weights
        self.decoder_start_token_id = decoder_start_token_id
        self.eos_token_id = eos_token_id
        self.max_target_length = max_target_length
        self.check_options()
        shared = {}
        if share_encoder_decoder_weights:
            _require_same_network(config, backbone.config)
            backbone.shared_by = "share_encoder_decoder_weights"
            shared = {"embeddings": backbone.embeddings, "blocks": backbone.encoder.stack()}
        self.decoder = self.built_layer(
            BertDecoder, config, tie_word_embeddings, name="decoder", **shared
        )
        self.built = True

    def check_options(self):
        super().check_options()
        config, longest = self.decoder_config, self.max_target_length
        limit = config.max_position_embeddings
        rule = f"must be in [3, {limit}] (the decoder's max_position_embeddings)"
        fits = longest is None or 3 <= longest <= limit
        require(fits, rule, UserError, max_target_length=longest)
        if isinstance(self.eos_token_id, (list, tuple)):
            rule = "must be an id or a list of ids"
            require(len(self.eos_token_id) > 0, rule, UserError, eos_token_id=self.eos_token_id)
            self.replace_option("eos_token_id", list(self.eos_token_id))
        for name in ("decoder_start_token_id", "eos_token_id"):
            value = getattr(self, name)
            rule = f"must be in [0, {config.vocab_size}) (the decoder's vocab_size)"
            is_valid = all(0 <= token_id < config.vocab_size for token_id in _ids(value))
            require(is_valid, rule, UserError, **{name: value})
        if self.tokenizer is not None and self.tokenizer.vocab_size != config.vocab_size:
            raise UserError(
                "The vocabulary must have as many entries as the decoder's word embeddings: "
                f"{config.vocab_size}. Received: {self.tokenizer.vocab_size} entries. With another "
                "vocabulary for the targets, leave `tokenizer` out and pass token dictionaries."
            )

    @classmethod
    def from_encoder_decoder_pretrained(
        cls, encoder_path: str | os.PathLike, decoder_path: str | os.PathLike, **options: Any
    ) -> "BertEncoderDecoder":
        """Builds a model of two BERT checkpoints. The log names the weights that are random.

        The cross-attention has random weights unless the decoder's checkpoint has one. If that
        checkpoint has no head over the vocabulary, the output has too, except for the word
        embeddings.

        Args:
            encoder_path: What `BertBackbone.from_pretrained` opens, or a decoder of Hugging Face
                (`BertLMHeadModel`, `BertGenerationDecoder`). The tokenizer is the one here.
            decoder_path: The same; with `share_encoder_decoder_weights` a checkpoint of the same
                network, whose weights are those of encoder and decoder.
            **options: Arguments of this class and of `BertBackbone`.

        Raises:
            CheckpointError: If a tensor is missing, has another shape, or a file is unreadable.
            UserError: If the two do not fit, or an option is unknown.

        Example:
            >>> model = bert_tf.BertEncoderDecoder.from_encoder_decoder_pretrained(
            ...     "bert-base/", "bert-base/", share_encoder_decoder_weights=True
            ... )
            >>> model.decoder.embeddings is model.backbone.embeddings
            True
        """
        return hooks.load_encoder_and_decoder(cls, encoder_path, decoder_path, **options)

    def prepack_for_inference(self, dtype: str | None = None) -> None:
        """Prepacks the kernels of encoder and decoder; see `BertBackbone.prepack_for_inference`.

        The output multiplies by a prepacked copy of its word embeddings. After `quantize`, this
        prepacks the kernels that are still in floating point: those of the decoder, unless it
        shares the encoder's weights.
        """
        super().prepack_for_inference(dtype)
        attention = [block.block.attention for block in self.decoder.blocks]
        self.backbone.prepack_layers(self.decoder.dense_layers().values(), attention, dtype)
        self.decoder.prepack_words(dtype)

    @property
    def longest_target(self) -> int:
        """The maximum number of tokens of a target, start and end included."""
        return self.max_target_length or self.decoder.config.max_position_embeddings

    @property
    def special_ids(self) -> tuple[int | None, int | None]:
        """The `decoder_start_token_id` and the first `eos_token_id`."""
        return self.decoder_start_token_id, next(iter(_ids(self.eos_token_id)), None)

    @property
    def start_token_id(self) -> int:
        """The first token of the decoder."""
        return self._special_ids("decoder_start_token_id", "cls_token_id")[0]

    @property
    def end_token_ids(self) -> tuple[int, ...]:
        """The tokens that end a target. The first one follows the targets of training."""
        return self._special_ids("eos_token_id", "sep_token_id")

    @property
    def target_config(self):
        return self.decoder.config

    def _special_ids(self, name, of_tokenizer):
        ids = _ids(getattr(self, name))
        if not ids and self.tokenizer is None:
            raise UserError(f"`{name}` must be given without a tokenizer. Received: {name}=None")
        return ids or (getattr(self.tokenizer, of_tokenizer),)

    def memory_of(self, inputs: dict[str, tf.Tensor], training: bool = False):
        """Returns the encoder's vectors of what the backbone takes, `[B, S, H]`, and their mask.

        The decoder attends to them. The mask, bool `[B, S]`, is True for real tokens.
        """
        outputs = self.backbone(inputs, training=training)
        return outputs["sequence_output"], self.backbone.padding_mask_of(inputs)

    def decoded(self, tokens, training):
        if tokens.get(DECODER_TOKEN_IDS) is None:
            expected = f"hold `{DECODER_TOKEN_IDS}` [B, T], the target that the decoder reads"
            raise user_error("Inputs", expected, sorted(tokens))
        if tokens.get("sequence_ids") is not None:
            expected = "not hold `sequence_ids`: a row is one source"
            raise user_error("Inputs", expected, sorted(tokens))
        memory, memory_mask = self.memory_of(tokens, training)
        target = {
            "token_ids": tokens[DECODER_TOKEN_IDS],
            "padding_mask": tokens.get(DECODER_PADDING_MASK),
        }
        target = checked_token_inputs(target, self.decoder.config)
        rows = [tf.shape(target["token_ids"])[0], tf.shape(memory)[0]]
        must = f"`{DECODER_TOKEN_IDS}` must have as many rows as `token_ids`"
        checks = require_tensor(
            tf.equal(*rows), must, rows, f"`{DECODER_TOKEN_IDS}` and `token_ids`"
        )
        target = depending_on(checks, target)
        token_ids = target["token_ids"]
        mask = target.get("padding_mask", token_ids != self.decoder.config.pad_token_id)
        states, words = self.decoder(
            token_ids,
            padding_mask=mask,
            memory=memory,
            memory_mask=memory_mask,
            packed=self._packs_tokens(),
            training=training,
        )
        return states, words, mask

    def next_word_logits(self, rows, words):
        return self.decoder.logits(rows, words)

    def start_decoding(self, tokens, num_steps):
        return self.decoder.start(*self.memory_of(tokens), num_steps)

    def next_token(self, token_ids, position, state, memory):
        return self.decoder.step(token_ids, position, state, memory)


def _ids(value):
    """Returns an id, a list of ids or None as a tuple."""
    return tuple(value) if isinstance(value, (list, tuple)) else () if value is None else (value,)


def _decoder_config(config, encoder_config) -> BertConfig:
    """Returns the configuration of the decoder, or raises `UserError` if it cannot have it."""
    config = BertConfig(**config) if isinstance(config, dict) else config
    for part, network in (("encoder", encoder_config), ("decoder", config or encoder_config)):
        name, buckets = network.model_type, network.relative_attention_num_buckets
        if name not in BERTS or buckets is not None:
            expected = "be a BERT or a BERT-generation network, without a bias of distances"
            received = f"model_type={name!r}, relative_attention_num_buckets={buckets}"
            raise user_error(f"The {part}", expected, received)
    if config is None:
        sparse = {"attention_window": None, "num_global_tokens": 1, "num_random_blocks": None}
        return dataclasses.replace(encoder_config, **sparse, pruned_heads={}, extra={})
    window, blocks = config.attention_window, config.num_random_blocks
    if (window, blocks) != (None, None) or config.pruned_heads:
        received = f"attention_window={window}, num_random_blocks={blocks}, {config.pruned_heads=}"
        raise user_error("`decoder_config`", "have full attention and all heads", received)
    if config.hidden_size != encoder_config.hidden_size:
        raise UserError(
            "`decoder_config.hidden_size` must be the encoder's, because the cross-attention reads "
            f"its vectors: {encoder_config.hidden_size}. Received: {config.hidden_size}"
        )
    return config


def _require_same_network(config, encoder_config):
    same, other = vars(encoder_config), vars(config)
    different = [name for name in same if same[name] != other[name] and name != "extra"]
    if different:
        raise UserError(
            "`decoder_config` must be the encoder's with share_encoder_decoder_weights=True. "
            "Received: " + ", ".join(f"{n}={other[n]} and {same[n]}" for n in different)
        )
