"""A sequence-to-sequence model of one BERT, with the attention of a prefix language model.

Glossary: `B` sources, `S` tokens of a source, `n` sequences that are written, a multiple of B.

Reference: Dong et al. 2019 (arXiv 1905.03197), UniLM.
"""

import keras
import tensorflow as tf

from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.token_inputs import depending_on, require_tensor
from bert_tf.layers.attention.dot_product_attention import split_heads
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
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
        backbone.config.require_bert_blocks("the blocks of a prefix language model")
        segments, window = backbone.config.type_vocab_size, backbone.attention_window
        blocks = backbone.num_random_blocks
        if (window, blocks) != (None, None) or segments < 2:
            expected = "have full attention and embeddings of two segments, source and target"
            received = f"attention_window={window}, num_random_blocks={blocks}"
            received += f", type_vocab_size={segments}"
            raise user_error("`backbone`", expected, received)
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
    def end_token_ids(self) -> tuple[int]:
        """The token after the last word of a target: `[SEP]`."""
        return (self.start_token_id,)

    def prepack_for_inference(self, dtype: str | None = None) -> None:
        """Prepacks the kernels of the encoder; see `BertBackbone.prepack_for_inference`.

        The word embeddings are needed in both forms, so the prepacked form is a copy.
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
        prepacked = self.backbone.embeddings.prepacked_words
        return self.masked_lm_head(rows, word_embeddings=words, prepacked_words=prepacked)

    def start_decoding(self, tokens, num_steps):
        """Computes the keys and values of the source, without its `[SEP]`, which are the memory.

        That `[SEP]` is the first token of the loop: the first word is predicted from it. The state
        is the empty `KeyValueCache` of each block. The memory is `mask`, bool `[B, S]`, True for
        real tokens of the source but its last; `end`, int32 `[B]`, the position of the last; and
        `blocks`, for each block the keys and values, two tensors `[B, N, S, D]`.
        """
        blocks, backbone = [], self.backbone

        def keep(attention, qkv, layout, rule):
            heads = (attention.num_heads, attention.head_size)
            rows = tf.reshape(qkv[:, 1:], [-1, 2 * heads[0] * heads[1]])  # [R, 2ND]
            blocks.append(split_heads(layout.to_batch(rows), 2, heads))

        is_source = prefix_mask(tokens, backbone.padding_mask_of(tokens))
        backbone(tokens, causal=True, attended_mask=is_source, observe=keep)
        columns = tf.range(tf.shape(is_source)[1])
        last = tf.reduce_max(tf.where(is_source, columns, 0), axis=1)  # [B]
        end = last
        if tokens.get("positions") is not None:
            end = tf.gather(tf.cast(tokens["positions"], tf.int32), last, batch_dims=1)
        longest, limit = tf.reduce_max(end) + 1, backbone.config.max_position_embeddings
        most = limit - num_steps + 1
        must = f"A source must have at most {most} tokens to write {num_steps} more"
        memory = {"end": end, "mask": is_source & (columns < last[:, tf.newaxis])}
        memory = depending_on(require_tensor(longest <= most, must, [longest], "tokens"), memory)
        num_rows = is_source.shape[0] or tf.shape(is_source)[0]
        layers = backbone.encoder.attention_layers().values()
        state = [layer.empty_cache(num_rows, num_steps) for layer in layers]
        return state, {**memory, "blocks": blocks}

    def next_token(self, token_ids, position, state, memory):
        places = memory["end"][:, tf.newaxis] + position  # [B, 1]
        by_source = tf.reshape(token_ids, [tf.shape(places)[0], -1])  # [n] -> [B, n / B]
        places = tf.reshape(tf.broadcast_to(places, tf.shape(by_source)), [-1])  # [n]
        segment_ids = tf.fill(tf.shape(token_ids), tf.cast(position > 0, tf.int32))
        embeddings, blocks = self.backbone.embeddings, self.backbone.encoder.stack()
        rows, words = embeddings(token_ids, segment_ids=segment_ids, positions=places)
        caches = []
        for block, cache, prefix in zip(blocks, state, memory["blocks"], strict=True):
            rows, cache = block.step(rows, position, cache, prefix, memory["mask"])
            caches.append(cache)
        words = embeddings.dequantized_words() if words is None else words
        return self.next_word_logits(rows, words), caches, rows


def prefix_mask(inputs: dict[str, tf.Tensor], padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns which tokens come before the first one with a segment id above 0, bool `[B, T]`.

    Without `segment_ids`, all real tokens are in the prefix: the `padding_mask` bool `[B, T]`.

    Raises:
        UserError: If a row holds several sequences.

    Example:
        >>> inputs = {"segment_ids": tf.constant([[0, 0, 1, 1]])}
        >>> prefix_mask(inputs, tf.constant([[True, True, True, False]])).numpy()
        array([[ True,  True, False, False]])
    """
    if inputs.get("sequence_ids") is not None:
        expected = "not hold `sequence_ids` where a prefix is seen whole: a row is one sequence"
        raise user_error("Inputs", expected, sorted(inputs))
    if inputs.get("segment_ids") is None:
        return padding_mask
    in_target = padding_mask & (tf.convert_to_tensor(inputs["segment_ids"]) > 0)
    return padding_mask & (tf.cumsum(tf.cast(in_target, tf.int32), axis=1) == 0)
