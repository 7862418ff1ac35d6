"""The decoder of a sequence-to-sequence model: token ids and an encoder's vectors to word logits.

Glossary, next to that of the package: `S` length of the memory, the vectors of the encoder.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.families.network_families import BERT_GENERATION
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.decoder_block import BertDecoderBlock
from bert_tf.layers.dense import Dense
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.masked_lm_head import MaskedLMHead, prepack_words
from bert_tf.ops.attention_rule import AttentionRule


@keras.saving.register_keras_serializable(package="bert_tf")
class BertDecoder(ConfiguredLayer):
    """BERT with causal self-attention, cross-attention in every block and the masked-LM head.

    It computes whole sequences (a call, then `logits`), or one token after the other (`start`, then
    `step`), with the same results.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        tie_word_embeddings: Whether the logits are products with the word embeddings. False makes
            another table for them.
        embeddings: The `BertEmbeddings` of an encoder, to share them. None makes new ones.
        blocks: The L `BertEncoderBlock`s of an encoder, to share all but the cross-attention. None
            makes new ones.

    Call arguments:
        token_ids: int32 `[B, T]`.
        padding_mask: bool `[B, T]`, True for real tokens.
        memory: `[B, S, H]`, the vectors of the encoder.
        memory_mask: bool `[B, S]`, True for real tokens of the encoder.
        packed: Whether to compute on real tokens only.

    Returns:
        The vectors `[B, T, H]`, zeros for padding, and the embeddings of the words in the output
        `[V, H]`, which `logits` takes.

    Example:
        >>> config = bert_tf.BertConfig(vocab_size=64, hidden_size=32, num_attention_heads=4)
        >>> decoder = bert_tf.layers.BertDecoder(config)
        >>> memory, memory_mask = tf.ones([1, 3, 32]), tf.constant([[True, True, False]])
        >>> token_ids = tf.constant([[5, 6]])
        >>> vectors, words = decoder(
        ...     token_ids, padding_mask=token_ids > 0, memory=memory, memory_mask=memory_mask
        ... )
        >>> logits = decoder.logits(vectors[:, 1], words)
        >>> state, memory = decoder.start(memory, memory_mask, length=2)
        >>> _, state, _ = decoder.step(token_ids[:, 0], 0, state, memory)
        >>> same_logits, _, _ = decoder.step(token_ids[:, 1], 1, state, memory)
        >>> np.testing.assert_allclose(same_logits, logits, atol=1e-5)

    Reference: Rothe et al. 2019 (arXiv 1907.12461), section 3.1; Vaswani et al. 2017 (arXiv
    1706.03762), section 3.1.
    """

    def __init__(
        self,
        config: BertConfig | dict,
        tie_word_embeddings: bool = True,
        embeddings: BertEmbeddings | None = None,
        blocks: Sequence[BertEncoderBlock] | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        self.config.require_bert_blocks("the blocks of a decoder")
        self.tie_word_embeddings = tie_word_embeddings
        dtype = self.dtype_policy
        if embeddings is None:
            embeddings = BertEmbeddings(self.config, dtype=dtype, name="embeddings")
        self.embeddings = embeddings
        self.blocks = [
            BertDecoderBlock(self.config, block, dtype=dtype, name=f"layer_{index}")
            for index, block in enumerate(blocks or [None] * self.config.num_hidden_layers)
        ]
        has_transform = self.config.model_type != BERT_GENERATION
        self.head = MaskedLMHead(self.config, has_transform, dtype=dtype, name="head")
        self.output_embeddings = None
        self.prepacked_words = None

    def build(self, input_shape=None):
        config = self.config
        for layer in (self.embeddings, *self.blocks, self.head):
            if not layer.built:
                layer.build()
        if not self.tie_word_embeddings:
            self.output_embeddings = self.add_weight(
                name="output_embeddings",
                shape=[config.vocab_size, config.hidden_size],
                initializer=keras.initializers.TruncatedNormal(stddev=config.initializer_range),
            )
        self.built = True

    def call(self, token_ids, padding_mask, memory, memory_mask, packed=False, training=False):
        make_layout = TokenLayout.packed if packed else TokenLayout.padded
        layout, memory_layout = make_layout(padding_mask), make_layout(memory_mask)
        rule = AttentionRule(causal=True)
        positions = tf.broadcast_to(tf.range(tf.shape(token_ids)[1]), tf.shape(token_ids))
        rows, words = self._embedded(
            layout.to_rows(token_ids), layout.to_rows(positions), training
        )  # [B, T] -> [R, H]
        memory = memory_layout.to_rows(memory)  # [B, S, H] -> [M, H]
        options = {"memory": memory, "memory_layout": memory_layout, "training": training}
        for block in self.blocks:
            rows = block(rows, layout=layout, rule=rule, **options)
        return layout.to_batch(rows), words  # [R, H] -> [B, T, H]

    def _embedded(self, token_ids, positions, training=False):
        """Returns the embedded tokens `[R, H]` and the embeddings of the output words `[V, H]`."""
        segment_ids = tf.zeros_like(token_ids)
        rows, words = self.embeddings(
            token_ids, segment_ids=segment_ids, positions=positions, training=training
        )
        if self.output_embeddings is not None:
            words = tf.convert_to_tensor(self.output_embeddings)
        elif words is None:
            words = self.embeddings.dequantized_words()
        return rows, words

    def logits(self, rows: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        """Returns the logits of the next words, float32 `[R, V]`.

        `rows` `[R, H]` are vectors that a call returned, `words` `[V, H]` what it returned with
        them.
        """
        owner = self if self.output_embeddings is not None else self.embeddings
        return self.head(rows, word_embeddings=words, prepacked_words=owner.prepacked_words)

    def start(self, memory: tf.Tensor, memory_mask: tf.Tensor, length: int):
        """Returns what `step` needs before the first token, for at most `length` steps.

        It is the state: the empty `KeyValueCache` of each block, for B sequences; and the memory,
        which does not change: `mask`, bool `[B, S]`, and `blocks`, for each block the keys and
        values, two tensors `[B, N, S, D]`. For the arguments see the class.
        """
        memory = tf.cast(memory, self.compute_dtype)
        num_rows = memory.shape[0] or tf.shape(memory)[0]
        state = [block.block.attention.empty_cache(num_rows, length) for block in self.blocks]
        blocks = [block.cross_attention.project(memory) for block in self.blocks]
        return state, {"mask": memory_mask, "blocks": blocks}

    def step(self, token_ids: tf.Tensor, position: tf.Tensor, state: list, memory: dict):
        """Computes the logits after one more token of each sequence, for `generation.generate`.

        Args:
            token_ids: int32 `[n]`; n is a multiple of B, and sequence i belongs to row
                `i // (n // B)` of the memory.
            position: A scalar int32, the position of the tokens, from 0.
            state, memory: What `start` returned, or the last `step`, with n rows.

        Returns:
            The logits of the next words, float32 `[n, V]`; the next state; and the vectors of the
            tokens, from which the logits are computed, `[n, H]`.
        """
        position = tf.convert_to_tensor(position, tf.int32)
        positions = tf.fill(tf.shape(token_ids), position)
        rows, words = self._embedded(token_ids, positions)  # [n, H]
        caches = []
        for block, cache, known in zip(self.blocks, state, memory["blocks"], strict=True):
            rows, cache = block.step(rows, position, cache, known, memory["mask"])
            caches.append(cache)
        return self.logits(rows, words), caches, rows

    def dense_layers(self) -> dict[str, Dense]:
        """Returns the dense layers of the blocks and the head by their paths in the decoder."""
        parts = {f"blocks.{index}": block for index, block in enumerate(self.blocks)}
        parts["head"] = self.head
        return {
            f"{name}.{path}": dense
            for name, part in parts.items()
            for path, dense in part.dense_layers().items()
        }

    def prepack_words(self, dtype: str | None = None) -> None:
        """Prepacks the embeddings of the output words; see `BertEmbeddings.prepack_words`."""
        if self.output_embeddings is None:
            self.embeddings.prepack_words(dtype)
        else:
            prepack_words(self, lambda: tf.convert_to_tensor(self.output_embeddings), dtype)
