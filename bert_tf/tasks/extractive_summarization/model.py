"""Extractive summarization: the sentences of a document that are its summary."""

from typing import Any

import keras
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, require
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.embeddings import sinusoidal_positions
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.pooling import first_columns
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.ops.native import needs_static_shapes
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.training.losses.token_loss import OwnTokenLoss
from bert_tf.training.traced_steps import predict_rows


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSentenceExtractor(OwnTokenLoss, DenseHeadModel):
    """BERT with a score for each sentence of a document, whose best sentences are its summary.

    Every sentence begins with its own `[CLS]`. `fit` and `evaluate` take documents as strings,
    which are split at end marks and line ends, or as lists of sentences. `y` is a reference summary
    for each document (the sentences to extract are those of `oracle_labels`), or a list of labels,
    0 or 1, for its sentences. Documents longer than `max_length` are cut between sentences.

    Args:
        backbone, tokenizer: See `TaskModel`.
        num_sentences: The maximum number of sentences of a summary, for labels and for answers.
        trigram_blocking: Whether a sentence is left out of a summary if it has three words in a row
            in common with a better one.
        num_sentence_layers: The number of layers between BERT and the scorer in which the sentences
            of a window attend to each other. BertSum has 2.
        max_length: The maximum number of tokens of a window; a longer sentence is truncated.

    Returns:
        Logits float32 `[B, T]`; those at the `[CLS]` of a sentence count. `fit` on token
        dictionaries takes labels int32 `[B, T]`, -100 at all other tokens.

    Raises:
        UserError: If `num_sentences` is not an integer of at least 1, or `num_sentence_layers` of
            at least 0.

    Example:
        >>> model = bert_tf.BertSentenceExtractor.from_pretrained("bert-base/", num_sentences=1)
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-2, bias_correction=True))
        >>> document = "It rained. Ada Lovelace wrote a program. It was cold."
        >>> model.fit([document], ["Ada wrote a program"], epochs=10)
        >>> model.summarize(document)
        'Ada Lovelace wrote a program.'

    Reference: Liu 2019 (arXiv 1903.10318); with layers between sentences Liu and Lapata 2019 (arXiv
    1908.08345), section 3.1.
    """

    loss_items = "sentences"
    num_sentences = Held()
    trigram_blocking = Held()

    def __init__(
        self,
        backbone: BertBackbone,
        num_sentences: int = 3,
        trigram_blocking: bool = True,
        num_sentence_layers: int = 0,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        _check_count("num_sentence_layers", num_sentence_layers, least=0)
        self.num_sentences = num_sentences
        self.trigram_blocking = trigram_blocking
        self.check_options()
        self.num_sentence_layers = num_sentence_layers
        self.sentence_layers = None
        if num_sentence_layers:
            options = {"num_layers": num_sentence_layers, "name": "sentence_layers"}
            self.sentence_layers = self.built_layer(SentenceLayers, backbone.config, **options)
        self.scorer = self.dense_head(1, "scorer")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.built = True

    def check_options(self):
        super().check_options()
        _check_count("num_sentences", self.num_sentences, least=1)

    def head(self, outputs, tokens, training=False):
        states = outputs["sequence_output"]  # [B, T, H]
        if self.sentence_layers is not None:
            states = self._between_sentences(states, tokens, training)
        return tf.squeeze(self.token_logits(states), -1)  # [B, T, 1] -> [B, T]

    def _between_sentences(self, states, tokens, training):
        """Applies the layers between sentences: `[B, T, H]` -> `[B, T, H]`."""
        if tokens.get("sequence_ids") is not None:
            raise UserError(
                "Inputs must not hold `sequence_ids` for a model with layers between sentences: a "
                f"row is one window. Received: {sorted(tokens)}"
            )
        starts = sentence_starts(tokens["token_ids"], self.backbone.padding_mask_of(tokens))
        packed = self.backbone.packs_tokens() and not needs_static_shapes()
        return self.sentence_layers(states, starts=starts, packed=packed, training=training)

    def summarize(
        self,
        texts: Any,
        num_sentences: int | None = None,
        trigram_blocking: bool | None = None,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> str | list[str]:
        """Returns the summaries of documents: their best sentences, in their order, joined.

        Args:
            texts: A list of strings, or one; or a list of lists of sentences.
            num_sentences: The maximum number of sentences of a summary; None means the model's.
            trigram_blocking: Whether to leave out a sentence that has three words in a row in
                common with a better one of the summary; None means the model's setting.
            batch_size: The maximum number of windows of a batch.
            token_budget, verbose: See `predict`.

        Returns:
            A string for each document, or one string for one document; "" for an empty document.

        Raises:
            UserError: If there is no tokenizer, a document is neither a string nor a list of
                strings, or `num_sentences` is not an integer of at least 1.
            DataError: If a text is missing or malformed.

        Example:
            >>> model = bert_tf.BertSentenceExtractor.from_pretrained("bert-base/")
            >>> model.summarize(["It rains. Ada writes.", ""], num_sentences=2)
            ['It rains. Ada writes.', '']
        """
        if num_sentences is None:
            num_sentences = self.num_sentences
        if trigram_blocking is None:
            trigram_blocking = self.trigram_blocking
        _check_count("num_sentences", num_sentences, least=1)
        preprocessor = self.preprocessor
        columns = preprocessor.read_examples(texts)
        rows = preprocessor.encode(columns)
        values = predict_rows(self, rows, batch_size, verbose, token_budget=token_budget)
        summaries = preprocessor.summaries(values, rows, num_sentences, trigram_blocking)
        return summaries[0] if columns.is_single else summaries


def _check_count(name, value, least):
    is_valid = is_integer(value) and value >= least
    require(is_valid, f"must be an integer of at least {least}", **{name: value})


def sentence_starts(token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns which tokens are the `[CLS]` of a sentence, those like the first: bool `[B, T]`.

    `token_ids` are int32 `[B, T]`, `padding_mask` bool `[B, T]`, True for real tokens.

    Example:
        >>> token_ids = tf.constant([[2, 7, 3, 2, 8, 3, 0]])
        >>> sentence_starts(token_ids, token_ids > 0).numpy().astype(int)
        array([[1, 0, 0, 1, 0, 0, 0]])
    """
    first = first_columns(padding_mask)[:, tf.newaxis]  # [B, 1]
    return padding_mask & tf.equal(token_ids, tf.gather(token_ids, first, batch_dims=1))


@keras.saving.register_keras_serializable(package="bert_tf")
class SentenceLayers(ConfiguredLayer):
    """Encoder blocks on the `[CLS]` vectors of the sentences, with sinusoidal positions.

    A sentence attends to all sentences of its window, and to no other token.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        num_layers: The number of blocks, at least 1.

    Call arguments:
        states: `[B, T, H]`, the outputs of BERT.
        starts: bool `[B, T]`, True for the `[CLS]` of a sentence.
        packed: Whether to compute on these tokens only, not on all `B * T`.

    Returns:
        `[B, T, H]`: a vector at each `[CLS]` of a sentence, zeros elsewhere.

    Example:
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4)
        >>> layers = SentenceLayers(config, num_layers=2)
        >>> layers(tf.ones([1, 3, 32]), starts=tf.constant([[True, False, True]])).shape
        TensorShape([1, 3, 32])

    Reference: Liu and Lapata 2019 (arXiv 1908.08345), section 3.1, equations 2 and 3.
    """

    def __init__(self, config: BertConfig | dict, num_layers: int, **kwargs):
        super().__init__(config, **kwargs)
        self.config.require_bert_blocks("blocks between sentences")
        self.num_layers = num_layers
        # Not `layer_{index}`, which learning rates by layer take for a layer of the encoder.
        self.blocks = [
            BertEncoderBlock(self.config, dtype=self.dtype_policy, name=f"sentence_layer_{index}")
            for index in range(num_layers)
        ]

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        self.built = True

    def call(self, states, starts, packed=False, training=False):
        layout = TokenLayout.packed(starts) if packed else TokenLayout.padded(starts)
        numbers = tf.math.cumsum(tf.cast(starts, tf.int32), axis=1, exclusive=True)  # [B, T]
        table = sinusoidal_positions(self.config.max_position_embeddings, self.config.hidden_size)
        positions = tf.gather(table, layout.to_rows(numbers))  # [B, T] -> [S, H]
        rows = layout.to_rows(states)  # [B, T, H] -> [S, H]
        rows += tf.cast(positions, rows.dtype)
        for block in self.blocks:
            rows = block(rows, layout=layout, training=training)
        return layout.to_batch(rows)  # [S, H] -> [B, T, H]
