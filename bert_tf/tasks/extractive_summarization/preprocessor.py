"""What `BertSentenceExtractor` reads and answers: documents with labels or summaries, summaries.

Documents become windows of whole sentences in their order, each once. A sentence is `[CLS] pieces
[SEP]`, and segments alternate from sentence to sentence (Liu 2019, arXiv 1903.10318, section 2.1).

Glossary: `S` sentences of all documents, `B` documents, `W` windows, `T` tokens of a window.
"""

import dataclasses
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.columns import (
    TextColumns,
    flat_strings,
    holds_lists,
    is_list,
    is_text,
    object_array,
    plain_rows,
    refuse_missing,
    shown,
    text_column,
)
from bert_tf.inputs.long_texts import split_sentences, split_sentences_in_graph, whole_windows
from bert_tf.inputs.token_rows import MarkedRows
from bert_tf.inputs.traced import IDS, SPLITS, traced
from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.extractive_summarization.selection import (
    join_best_sentences_eagerly,
    join_sentences,
    oracle_labels,
    select_sentences,
)
from bert_tf.tasks.shared.preprocessors import ItemPreprocessor
from bert_tf.text import packing
from bert_tf.text.code_points import joined_rows

_DOCUMENTS_AT_ONCE = 1000  # selected from together, so that little memory is needed


class PackedSentences(NamedTuple):
    """Windows of sentences: ids and segments, ragged int32 `[W, (T)]`.

    `sentence_starts`, ragged bool `[W, (T)]`, are the `[CLS]` of sentences; `documents`, int64
    `[W]`, the document of each window.
    """

    token_ids: tf.RaggedTensor
    segment_ids: tf.RaggedTensor
    sentence_starts: tf.RaggedTensor
    documents: tf.Tensor


def pack_sentences(
    tokenizer, pieces: tf.RaggedTensor, row_splits: tf.Tensor, max_length: int
) -> PackedSentences:
    """Packs documents into windows of as many whole sentences as fit.

    Args:
        tokenizer: A `BertTokenizer`.
        pieces: The ids of all sentences, ragged int32 `[S, (pieces)]`.
        row_splits: Where each document begins in them, int64 `[B + 1]`. A document without
            sentences has no window.
        max_length: The maximum number of tokens of a window; a longer sentence loses its end.
    """
    ends = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows, _ = packing.pack(pieces, None, *ends, max_length, "longest_first")  # [S, (tokens)]
    window_ends, documents = whole_windows(rows.row_splits, row_splits, max_length)  # [W]
    window_splits = tf.concat([[0], window_ends], axis=0)  # in sentences
    token_ids = joined_rows(rows, window_splits)  # [W, (T)]
    sizes = window_splits[1:] - window_splits[:-1]
    in_window = tf.ragged.range(sizes, row_splits_dtype=tf.int64).values  # [S], from 0 in each
    segments = tf.gather(tf.cast(in_window % 2, tf.int32), row_ids(rows.row_splits))
    tokens = tf.ragged.range(rows.row_lengths(), row_splits_dtype=tf.int64).values
    return PackedSentences(
        token_ids, token_ids.with_values(segments), token_ids.with_values(tokens == 0), documents
    )


pack_sentences_eagerly = traced(pack_sentences, [IDS, SPLITS])


class SentenceWindows(MarkedRows):
    """The windows of documents as rows of tokens, with the `[CLS]` of each sentence marked.

    Args:
        tokenizer, max_length: See `pack_sentences`.
        sentences: The sentences of the documents, ragged strings `[B, (S)]`.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> sentences = tf.ragged.constant([["It is.", "It was."], ["Why?"]])
        >>> SentenceWindows(tokenizer, sentences, max_length=128).lengths()
        array([10,  4])
    """

    def __init__(self, tokenizer, sentences: tf.RaggedTensor, max_length: int):
        with tf.device("CPU:0"):
            pack = pack_sentences_eagerly(tokenizer, max_length=max_length)
            packed = pack(tokenizer.tokenize(sentences.values), sentences.row_splits)
        super().__init__(
            packed.token_ids,
            packed.segment_ids,
            tokenizer.pad_token_id,
            packed.sentence_starts,
            packed.documents.numpy(),
            sentences.row_splits.numpy(),
        )
        self.sentences = sentences


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class ExtractiveSummarizationPreprocessor(ItemPreprocessor):
    """Maps documents to windows, summaries to labels of sentences, logits to summaries.

    Args:
        num_sentences, trigram_blocking: See `BertSentenceExtractor`.
        **options: The arguments of `Preprocessor`.
    """

    item = "sentence"

    num_sentences: int = 3
    trigram_blocking: bool = True

    def read_columns(self, x):
        """Returns documents as one array of lists of sentences; texts are split.

        Raises:
            DataError: If a document or a sentence is missing or malformed.
            UserError: If a document is neither a string nor a list of strings.
        """
        if isinstance(x, TextColumns):
            return x
        is_single = False
        if holds_lists(x):
            rows = plain_rows(x)
            refuse_missing(rows, "x")
            documents = [self._sentences(row, number) for number, row in enumerate(rows)]
        else:
            columns = super().read_columns(x)
            documents = [split_sentences(text) for text in map(_decoded, columns[0])]
            is_single = columns.is_single
        columns = TextColumns([object_array(documents)])
        columns.is_single = is_single
        return columns

    def _sentences(self, row, number):
        if not is_list(row):
            raise UserError(
                "Every document must be a list of sentences, because one is. "
                f"Received for document {number}: {shown(row)}"
            )
        return [_decoded(text) for text in text_column(row, self.text_errors, f"x[{number}]")]

    def targets(self, y, x):
        """Returns the targets; for documents an array of the labels of their sentences.

        Raises:
            DataError: If a label or summary is missing.
            UserError: If there is not one row for each document, or one label for each sentence.
        """
        if y is None or not isinstance(x, TextColumns):
            return super().targets(y, x)
        (documents,) = x
        rows = [y] if is_text(y) else plain_rows(y, "y")
        refuse_missing(rows, "y")
        if len(rows) != len(documents):
            expected = "have a row for every document"
            raise user_error("`y`", expected, f"{len(documents)} documents, {len(rows)} rows")
        if len(rows) and is_text(rows[0]):
            summaries = [_decoded(text) for text in text_column(rows, self.text_errors, "y")]
            return object_array(oracle_labels(documents, summaries, self.num_sentences))
        return object_array([_labels(*pair) for pair in enumerate(zip(documents, rows))])

    def item_labels(self, lists, y):
        """Returns the labels of all sentences, int32 `[S]`.

        Raises:
            UserError: If there is no `y`.
        """
        rule = "must be the labels of the sentences of each document, or its summary"
        require(y is not None, rule, UserError, y=None)
        return np.concatenate([np.zeros([0], np.int32), *y])

    def windows(self, lists):
        sentences = tf.RaggedTensor.from_row_splits(*flat_strings(lists), validate=False)
        return SentenceWindows(self.tokenizer, sentences, self.max_sequence_length)

    def tokenize(self, *texts):
        """Returns the first window of each document, strings `[B]`, as a token dictionary."""
        self.require_tokenizer()
        sentences = self.sentences_in_graph(texts[0])
        pieces = self.tokenizer.tokenize(sentences.values)
        rows = pieces, tf.cast(sentences.row_splits, tf.int64)
        packed = pack_sentences(self.tokenizer, *rows, self.max_sequence_length)
        first = tf.searchsorted(packed.documents, tf.range(tf.size(texts[0], tf.int64)))
        rows = (tf.gather(part, first) for part in packed[:2])
        return packing.pad(*rows, self.tokenizer.pad_token_id, self.static_length, 1)

    @staticmethod
    def sentences_in_graph(texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits strings `[B]` to ragged `[B, (S)]`; an empty text has one empty sentence."""
        sentences = split_sentences_in_graph(texts)
        is_empty = tf.cast(sentences.row_lengths() == 0, tf.int64)
        empty = tf.fill([tf.reduce_sum(is_empty)], "")
        return tf.concat([sentences, tf.RaggedTensor.from_row_lengths(empty, is_empty)], axis=1)

    def summaries(
        self, values: np.ndarray, rows: SentenceWindows, num_sentences: int, trigram_blocking: bool
    ) -> list[str]:
        """Returns the summary of every document, from the outputs `[W, T]` of its windows."""
        logits, texts = rows.marked_values(values), rows.sentences.values
        summarize = join_best_sentences_eagerly(num_sentences, trigram_blocking)
        found = []
        for begin in range(0, len(rows.item_splits) - 1, _DOCUMENTS_AT_ONCE):
            splits = rows.item_splits[begin : begin + _DOCUMENTS_AT_ONCE + 1]
            part = slice(splits[0], splits[-1])
            summaries = summarize(texts[part], splits - splits[0], logits[part])
            found += map(_decoded, summaries.numpy())
        return found

    def batches(self, source, training, labels=(), numbers=None, seed=0):
        if numbers is not None:
            return super().batches(source, training, labels, numbers, seed)
        expected = "be given together, as lists: one may become several windows"
        raise user_error("Documents", expected, "a dataset of text")


def _labels(number, document_and_row):
    """Returns the labels of a document's sentences, int32 `[sentences]`."""
    document, row = document_and_row
    values = None if is_text(row) else np.asarray(plain_rows(row, f"y[{number}]"))
    if values is None or values.shape != (len(document),) or not np.isin(values, (0, 1)).all():
        raise UserError(
            "`y` must have a summary for every document, or a label, 0 or 1, for every sentence "
            f"of every document. Received for document {number} with {len(document)} sentences: "
            f"{shown(row)}"
        )
    return values.astype(np.int32)


def _decoded(text):
    return text.decode("utf-8", errors="ignore") if isinstance(text, bytes) else text


class ExtractiveSummarizationModule(ServingModule):
    """Maps text of any length to its summary: what `summarize` gives."""

    def of_text(self, text):
        model, tokenizer = self.model, self.model.tokenizer
        sentences = model.preprocessor.sentences_in_graph(text)
        pieces = tokenizer.tokenize(sentences.values)
        packed = pack_sentences(
            tokenizer, pieces, tf.cast(sentences.row_splits, tf.int64), self.max_length
        )
        tokens = packing.pad(*packed[:2], tokenizer.pad_token_id, None, 1)
        logits = self.of_windows(tokens)  # [W, T]
        starts = packed.sentence_starts.to_tensor(False, shape=tf.shape(logits))
        logits = tf.boolean_mask(logits, starts)  # [S]
        options = model.num_sentences, model.trigram_blocking
        selected = sentences.with_values(select_sentences(sentences, logits, *options))
        numbers = tf.ragged.range(sentences.row_lengths(), row_splits_dtype=tf.int64)

        def of_selected(values):  # [B, (sentences)] -> [B, (selected sentences)]
            return tf.ragged.boolean_mask(values, selected)

        summary = of_selected(sentences)
        scores = of_selected(sentences.with_values(tf.sigmoid(logits)))
        return {
            "summary": join_sentences(summary),
            "sentence_count": tf.cast(summary.row_lengths(), tf.int32),
            "sentence_text": summary.to_tensor(""),
            "sentence_number": tf.cast(of_selected(numbers).to_tensor(), tf.int32),
            "sentence_score": scores.to_tensor(),
        }
