"""A sequence-to-sequence model of one BERT, with the attention of a prefix language model.

Reference: Dong et al. 2019 (arXiv 1905.03197), UniLM.
"""

import keras
import tensorflow as tf

from bert_tf.errors import UserError, require, user_error
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
from bert_tf.tasks.prefix_lm.decoding import next_vectors, prefix_mask, read_sources
from bert_tf.tasks.shared.text_generator import TextGenerator


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPrefixLM(TextGenerator, TaskModel):
    """One BERT for translation and summarization, with the masked-LM head as its output.

    A sequence is `[CLS] source [SEP] target [SEP]`. The tokens of the source attend to the whole
    source, those of the target to the source and to the target up to themselves. All weights are
    those of BERT and its masked-LM head, so training can begin with any checkpoint.

    `fit` and `evaluate` take pairs of texts, `(sources, targets)`, without labels. The model learns
    to predict the word after each token from the true words before it. (UniLM predicts randomly
    chosen words of the target, which `[MASK]` replaces. It therefore needs an extra `[MASK]` at
    each generation step, and each sequence trains only the masked words.)

    Args:
        backbone: A `BertBackbone` with full attention and two segments.
        tokenizer: See `TaskModel`, for sources and targets.
        max_length: The maximum number of tokens of a source, `[CLS]` and `[SEP]` included. None
            means the positions that targets leave free.
        max_target_length: The same for a target, whose first token is the `[SEP]` of the source.
            None means the positions that sources leave free, or half of all positions if
            `max_length` is None too.
        generation_config: The `bert_tf.generation.GenerationConfig` that `generate` and an exported
            model use by default, or its fields as a dictionary.

    Call arguments:
        inputs: What the backbone takes, with `segment_ids`: 0 for the source and its `[SEP]`, 1 for
            the target. Or a tuple of two string tensors `[B]`.

    Returns:
        Logits float32 `[B, T, V]` of the word after each token, from the source's `[SEP]` on; zeros
        for the tokens before it and for padding.

        `fit` on token dictionaries takes these words as labels int32 `[B, T]`, -100 elsewhere.

    Raises:
        UserError: If the backbone has another kind of attention or one segment, or lengths are out
            of range.

    Example:
        >>> model = bert_tf.BertPrefixLM.from_pretrained("bert-base/", max_target_length=8)
        >>> loss = bert_tf.training.SparseCrossentropy(label_smoothing=0.1)
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-4), loss=loss)
        >>> history = model.fit((["a good film", "a bad film"], ["good", "bad"]), verbose=0)
        >>> model.predict(
        ...     (["a good film"], ["good ."])
        ... ).shape  # [CLS] a good film [SEP] good . [SEP]
        (1, 8, 64)

    Reference: Dong et al. 2019 (arXiv 1905.03197), for the attention; Raffel et al. 2019 (arXiv
    1910.10683), section 3.2, for the name.
    """

    def __init__(
        self,
        backbone: BertBackbone,
        tokenizer=None,
        max_length: int | None = None,
        max_target_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.max_target_length = max_target_length
        self.check_options()
        _require_full_attention_and_two_segments(backbone)
        self.masked_lm_head = self.built_layer(MaskedLMHead, backbone.config, name="masked_lm")
        self.built = True

    def check_options(self):
        super().check_options()
        limit = self.backbone.config.max_position_embeddings
        longest = self.longest_target
        lengths = (self.max_length or limit + 1 - longest, longest)
        if min(lengths) < 3 or sum(lengths) > limit + 1:
            raise UserError(
                f"`max_length` and `max_target_length` must be at least 3 and together at most "
                f"{limit + 1} (max_position_embeddings, and the `[SEP]` that counts twice). "
                f"Received: max_length={self.max_length}, "
                f"max_target_length={self.max_target_length}"
            )
        self._reserved_positions = longest - 1  # both parts count the `[SEP]` between them

    @property
    def longest_target(self) -> int:
        """The maximum number of tokens of a target, start and end included."""
        positions = self.backbone.config.max_position_embeddings
        if self.max_length is None:
            return self.max_target_length or positions // 2
        return self.max_target_length or positions + 1 - self.max_length

    @property
    def start_token_id(self) -> int:
        """The token from which the first word of a target is predicted: `[SEP]`."""
        rule = "must be given for `generate`, which needs its `[SEP]`"
        require(self.tokenizer is not None, rule, UserError, tokenizer=None)
        return self.tokenizer.sep_token_id

    @property
    def end_token_id(self) -> int:
        """The token after the last word of a target: `[SEP]`."""
        return self.start_token_id

    def prepack_for_inference(self, dtype: str | None = None) -> None:
        """Prepacks the kernels of the encoder and the output, for faster inference.

        The word embeddings are needed in both forms, so the prepacked form is a copy.

        Args:
            dtype: See `BertBackbone.prepack_for_inference`.

        Raises:
            UserError: See `BertBackbone.prepack_for_inference`.
        """
        super().prepack_for_inference(dtype)
        if self.backbone.is_prepacked:  # a model of 8-bit integers stays as it is
            self.backbone.prepack_layers(self.masked_lm_head.dense_layers().values(), (), dtype)
            self.backbone.embeddings.prepack_words(dtype)

    def decoded(self, tokens, training):
        if tokens.get("segment_ids") is None:
            expected = "hold `segment_ids` [B, T]: 0 for the source, 1 for the target"
            raise user_error("Inputs", expected, sorted(tokens))
        mask = self.backbone.padding_mask_of(tokens)
        in_source = prefix_mask(tokens, mask)
        options = {"attended_mask": in_source, **self.backbone_options()}
        outputs = self.backbone(tokens, training=training, **options)
        in_source = tf.cast(in_source, tf.int32)
        length = tf.reduce_sum(in_source, axis=1, keepdims=True)  # [B, 1]
        mask &= tf.equal(tf.cumsum(in_source, axis=1), length)  # from the source's last token on
        return outputs["sequence_output"], outputs["word_embeddings"], mask

    def next_word_logits(self, rows, words):
        words = tf.cast(words, self.compute_dtype)
        prepacked = self.backbone.embeddings.prepacked_words
        prepacked = prepacked and prepacked.kernel_impl
        logits = self.masked_lm_head(rows, word_embeddings=words, prepacked_words=prepacked)
        return tf.cast(logits, tf.float32)

    def start_decoding(self, tokens, max_new_tokens):
        return read_sources(self.backbone, tokens, max_new_tokens)

    def next_token(self, token_ids, position, state, memory):
        rows, words, state = next_vectors(self.backbone, token_ids, position, state, memory)
        if words is None:
            words = self.backbone.embeddings.dequantized_words()
        return self.next_word_logits(rows, words), state


def _require_full_attention_and_two_segments(backbone):
    segments = backbone.config.type_vocab_size
    if backbone.attention_window is not None or segments < 2:
        expected = "have full attention and embeddings of two segments, source and target"
        received = f"attention_window={backbone.attention_window}, type_vocab_size={segments}"
        raise user_error("`backbone`", expected, received)
