"""Texts to words in windows, and their tags to spans, in the graph: `BertTokenClassifier.tag`.

What `data.tagged_sentences` and `data.tag_schemes` do on lists.

Glossary: `B` texts, `W` words of all texts, `S` windows, `T` tokens of the longest, `E` spans.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.tasks.token_classification.tag_schemes import OUTSIDE, are_span_tags, tag_parts
from bert_tf.tasks.token_classification.word_windows import (
    CLAUSE_ENDS,
    WORD_STARTS,
    pieces_of_words,
)
from bert_tf.text import packing
from bert_tf.text.text_slices import TextSlices
from bert_tf.text.vocabulary import CONTINUATION


class GraphWords(NamedTuple):
    """The words of a batch of texts.

    Attributes:
        row_splits: int64 `[B + 1]`, which words belong to which text.
        starts: int64 `[W]`, the first character of each in its text.
        ends: int64 `[W]`, the one behind its last.
        words: string `[W]`.
    """

    row_splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    words: tf.Tensor

    @property
    def row_ids(self) -> tf.Tensor:
        """int64 `[W]`, the text of each word."""
        return tf.repeat(
            tf.range(tf.size(self.row_splits, tf.int64) - 1),
            self.row_splits[1:] - self.row_splits[:-1],
        )


def graph_words(tokenizer, texts: tf.Tensor, slices: TextSlices) -> GraphWords:
    """Splits texts `[B]` as BERT's basic tokenizer does: a piece and the `##` pieces behind it."""
    pieces = tokenizer.tokenize_with_offsets(texts)
    continues = tf.constant([piece.startswith(CONTINUATION) for piece in tokenizer.vocabulary])
    first = tf.where(~tf.gather(continues, pieces.ids.values))[:, 0]  # [W], of the pieces
    row_of = tf.gather(pieces.ids.value_rowids(), first)
    next_first = tf.concat([first[1:], [tf.size(pieces.ids.values, tf.int64)]], axis=0)
    next_first = next_first[: tf.size(first)]
    last = tf.minimum(next_first, tf.gather(pieces.ids.row_splits, row_of + 1)) - 1
    starts = tf.gather(pieces.char_starts.values, first)
    ends = tf.gather(pieces.char_ends.values, last)
    row_splits = tf.searchsorted(first, pieces.ids.row_splits, out_type=tf.int64)
    return GraphWords(row_splits, starts, ends, slices(row_of, starts, ends))


def word_windows(tokenizer, words: GraphWords, max_length: int) -> dict[str, tf.Tensor]:
    """The windows of texts, cut at word borders; a text without words has one, an empty one.

    Args:
        tokenizer: The `BertTokenizer`.
        words: What `graph_words` gave.
        max_length: The most tokens of a window.

    Returns:
        The token dictionary `[S, T]`, and in it `word_starts` bool `[S, T]`, the first pieces of
        the words in their order.
    """
    pieces = pieces_of_words(tokenizer, words.words, max_length - 2)  # ragged [W, (pieces)]
    ends = _cut_words(words, pieces.row_splits, max_length - 2)  # [S]
    splits = tf.gather(pieces.row_splits, tf.concat([[0], ends], axis=0))
    is_first = tf.scatter_nd(
        pieces.row_starts()[:, tf.newaxis],
        tf.ones_like(words.starts, tf.int32),
        tf.shape(pieces.values, tf.int64),
    )

    def pack(values, first, last):
        rows = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return packing.pack(rows, None, first, last, None, "longest_first")

    tokens = pack(pieces.values, tokenizer.cls_token_id, tokenizer.sep_token_id)
    features = packing.pad(*tokens, tokenizer.pad_token_id, None, 1)
    starts, _ = pack(is_first, 0, 0)
    shape = tf.shape(features["token_ids"], tf.int64)
    return {**features, WORD_STARTS: starts.to_tensor(0, shape=shape) > 0}


def _cut_words(words, piece_splits, limit):
    """The end of each window in words, int64 `[S]`; see `data.tagged_sentences.cut_words`."""
    last_character = tf.strings.substr(words.words, -1, 1, unit="UTF8_CHAR")
    ends_clause = tf.reduce_any(
        last_character[:, tf.newaxis] == tf.constant(sorted(CLAUSE_ENDS)), axis=1
    )
    breaks = tf.concat([[0], tf.where(ends_clause)[:, 0] + 1], axis=0)  # behind these words
    row_ends = words.row_splits[1:]

    def step(starts, ends, are_windows):
        room = tf.gather(piece_splits, starts) + limit
        fits = tf.searchsorted(piece_splits, room, side="right", out_type=tf.int64) - 1
        fits = tf.minimum(fits, row_ends)
        half = starts + (fits - starts) // 2
        clause = tf.gather(breaks, tf.searchsorted(breaks, fits, side="right") - 1)
        cut = tf.where((fits < row_ends) & (clause > half), clause, fits)
        ends = tf.concat([ends, cut[:, tf.newaxis]], axis=1)
        # The first window is there even where there is no word.
        is_window = (starts < row_ends) | (tf.shape(are_windows)[1] == 0)
        are_windows = tf.concat([are_windows, is_window[:, tf.newaxis]], axis=1)
        return cut, ends, are_windows

    starts = words.row_splits[:-1]
    table = tf.TensorShape([None, None])
    none = tf.zeros([tf.size(starts), 0], tf.int64)
    _, ends, are_windows = tf.while_loop(
        lambda starts, ends, _: tf.reduce_any(starts < row_ends) | (tf.shape(ends)[1] == 0),
        step,
        (starts, none, tf.cast(none, tf.bool)),
        shape_invariants=(starts.shape, table, table),
    )
    return tf.boolean_mask(ends, are_windows)


class GraphSpans(NamedTuple):
    """Spans of words.

    Attributes:
        first: int64 `[E]`, the first word, of all words.
        last: int64 `[E]`, the last.
        label: string `[E]`.
    """

    first: tf.Tensor
    last: tf.Tensor
    label: tf.Tensor


def graph_spans(labels: list[str], tags: tf.Tensor, row_ids: tf.Tensor) -> GraphSpans:
    """The spans that tags stand for; see `data.tag_schemes.spans_of_tags`.

    Which span is open behind a word depends on the word's tag alone, so no loop is needed.

    Args:
        labels: The model's labels.
        tags: int `[W]`, the label of each word.
        row_ids: int64 `[W]`, the text of each word.
    """
    if not are_span_tags(labels):  # each word is one
        every = tf.range(tf.size(tags, tf.int64))
        return GraphSpans(every, every, tf.gather(tf.constant(labels), tags))
    parts = [tag_parts(label) or (OUTSIDE, "") for label in labels]
    names = list(dict.fromkeys(name for _, name in parts))
    name = tf.gather(tf.constant([names.index(name) for _, name in parts]), tags)  # [W]

    def has(prefixes):
        return tf.gather(tf.constant([prefix in prefixes for prefix, _ in parts]), tags)

    follows = has("IE")[1:] & has("BI")[:-1] & (name[1:] == name[:-1])
    follows &= row_ids[1:] == row_ids[:-1]  # [W - 1]
    nothing = tf.zeros_like(tags[:1], tf.bool)
    begins = has("BIES") & ~tf.concat([nothing, follows], axis=0)
    ends = has("ES") | has("BI") & ~tf.concat([follows, nothing], axis=0)
    first, last = tf.where(begins)[:, 0], tf.where(ends)[:, 0]
    return GraphSpans(first, last, tf.gather(tf.constant(names), tf.gather(name, first)))
