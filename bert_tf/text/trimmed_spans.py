"""Spans of pieces without the spaces at their ends, as Hugging Face's byte pairs have them.

Glossary: `B` strings, `V` pieces of the vocabulary.
"""

from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.text import code_points
from bert_tf.text.code_points import WORD_START, PieceModel, PlacedIds, checked


class TrimmedSpans(PieceModel):
    """Converts text to ids whose spans exclude spaces.

    Matches tokenizers, byte_level.rs, `process_offsets`: the number of spaces counts, not what the
    text has. A space that is added before text after a special token therefore takes the first
    character from the span of its piece.

    Args:
        model: Finds the pieces, with spaces in their spans.
        pieces: The vocabulary.
        space: The character that it has for a space.
        kept_ids: The ids of added tokens, whose spaces are those of the text.
        adds_space: Whether a space is added before text without one, so that a single one at the
            beginning of the first span stays.
    """

    def __init__(
        self,
        model: PieceModel,
        pieces: Sequence[str],
        space: str,
        kept_ids: Collection[int],
        adds_space: bool,
    ):
        self.model, self.errors, self.adds_space = model, model.errors, adds_space
        self._is_kept = np.isin(np.arange(len(pieces)), list(kept_ids))  # [V]
        self._before = np.array([len(piece) - len(piece.lstrip(space)) for piece in pieces])
        self._after = np.array([len(piece) - len(piece.rstrip(space)) for piece in pieces])

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self.model.ids(checked(texts, self.errors))

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        texts = checked(texts, self.errors)
        found = self.model.pieces(texts)
        rows = row_ids(found.ids.row_splits)
        points, row_splits = code_points.decode(texts)
        row_starts = tf.gather(row_splits, rows)
        first, ends = (places.values + row_starts for places in found[1:])
        is_space = code_points.white_space()(points.values) > 0
        text, text_ends = code_points.trimmed(is_space, first, ends)
        ids = found.ids.values % WORD_START
        is_kept = tf.gather(self._is_kept, ids)
        before = tf.where(is_kept, text - first, tf.gather(self._before, ids))
        after = tf.where(is_kept, ends - text_ends, tf.gather(self._after, ids))
        if self.adds_space:
            is_first = code_points.starts(rows) | (first == row_starts)
            before -= tf.cast(is_first & (before == 1), tf.int64)  # more were not added
        first = tf.minimum(first + before, ends)
        return code_points.placed(row_splits, found.ids, first, tf.maximum(ends - after, first))
