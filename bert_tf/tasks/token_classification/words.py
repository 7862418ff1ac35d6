"""The words of texts, and the spans of words that tags mean, in the graph or eagerly.

Glossary: `B` texts, `W` words of all texts, `E` spans.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.inputs.traced import SPLITS, STRINGS, traced
from bert_tf.tasks.token_classification.tag_schemes import OUTSIDE, are_span_tags, tag_parts
from bert_tf.text import code_points
from bert_tf.text.text_slices import TextSlices


class WordSpans(NamedTuple):
    """The words of a batch of texts.

    Attributes:
        row_splits: int64 `[B + 1]`, which words belong to which text.
        starts, ends: int64 `[W]`, the first character of each in its text, the one after its last.
        words: string `[W]`.
    """

    row_splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    words: tf.Tensor

    @property
    def row_ids(self) -> tf.Tensor:
        """int64 `[W]`, the text of each word."""
        return tf.ragged.row_splits_to_segment_ids(self.row_splits)


def words_of_texts(tokenizer, texts: tf.Tensor, slices: TextSlices) -> WordSpans:
    """Splits texts `[B]` into words: a piece and those after it that continue its word."""
    pieces = tokenizer.tokenize_with_offsets(texts, trim_offsets=True)
    continues = tf.constant(tokenizer.continues_word())
    begins = ~tf.gather(continues, pieces.ids.values)
    begins |= code_points.starts(pieces.ids.value_rowids())
    first = tf.where(begins)[:, 0]  # [W], of the pieces
    row_of = tf.gather(pieces.ids.value_rowids(), first)
    next_first = tf.concat([first, [tf.size(pieces.ids.values, tf.int64)]], axis=0)[1:]
    last = tf.minimum(next_first, tf.gather(pieces.ids.row_splits, row_of + 1)) - 1
    starts = tf.gather(pieces.char_starts.values, first)
    ends = tf.gather(pieces.char_ends.values, last)
    row_splits = tf.searchsorted(first, pieces.ids.row_splits, out_type=tf.int64)
    return WordSpans(row_splits, starts, ends, slices(row_of, starts, ends))


def word_spans(
    labels: list[str], tags: tf.Tensor, row_ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the spans that tags mean, as `spans_of_tags`; where they mean none, every word.

    Which span is open after a word depends on the word's tag alone, so no loop is needed.

    Args:
        labels, tags, row_ids: The model's labels, and the label and the text of each word, `[W]`.

    Returns:
        The first and the last word of each span, int64 `[E]`, and its label, string `[E]`.
    """
    if not are_span_tags(labels):  # each word is one
        every = tf.range(tf.size(tags, tf.int64))
        return every, every, tf.gather(tf.constant(labels), tags)
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
    return first, last, tf.gather(tf.constant(names), tf.gather(name, first))


words_of_texts_eagerly = traced(
    lambda tokenizer, texts: words_of_texts(tokenizer, texts, TextSlices(texts)), [STRINGS]
)
word_spans_eagerly = traced(word_spans, [tf.TensorSpec([None], tf.int32), SPLITS])
