"""Documents of sentences to windows of tokens, with one `[CLS]` for each sentence.

Each sentence is `[CLS] pieces [SEP]`, and segments alternate from sentence to sentence (Liu 2019,
arXiv 1903.10318, section 2.1). Windows hold whole sentences in their order, each once.

Glossary: `S` sentences of all documents, `B` documents, `W` windows, `T` tokens of a window.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.inputs.long_texts import whole_windows
from bert_tf.inputs.token_rows import MarkedRows
from bert_tf.inputs.traced import IDS, SPLITS, traced
from bert_tf.text import packing
from bert_tf.text.code_points import joined_rows


class PackedSentences(NamedTuple):
    """Windows of sentences.

    Attributes:
        token_ids, segment_ids: Ragged int32 `[W, (T)]`.
        sentence_starts: Which tokens are the `[CLS]` of a sentence, ragged bool `[W, (T)]`.
        documents: The document of each window, int64 `[W]`.
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
