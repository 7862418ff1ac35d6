"""Special tokens in the text, and numbers, that become one token before the text is split.

Glossary: `B` strings, `S` segments of strings, `T` pieces of a string.
"""

import re

import tensorflow as tf

from bert_tf.text.code_points import (
    WHITE_SPACE,
    PieceModel,
    PlacedIds,
    character_class,
    decode,
    joined_rows,
    trimmed,
    white_space,
)
from bert_tf.text.strings import checked

SPACES = f"[{character_class(WHITE_SPACE)}]*"
CUT = b"\xff"  # marks where to cut; UTF-8 does not have it
# A number that is not part of an English word. RE2's `\b` knows only ASCII, so there is a boundary
# between a number and an ideograph.
NUMBER = r"\b[0-9]+(?:\.[0-9]+)?\b"


class KeptWhole(PieceModel):
    """Converts text to ids, of which some parts are kept whole.

    Args:
        model: Converts the rest of the text.
        literals: The strings that are kept whole, with their ids.
        number_id: The id of every number. None leaves numbers to the vocabulary.
        strips: The literals that take the white space before and after them (two flags).
        trims: Whether spans exclude this white space.
    """

    def __init__(
        self,
        model: PieceModel,
        literals: dict[str, int],
        number_id: int | None = None,
        strips: dict[str, tuple[bool, bool]] | None = None,
        trims: bool = False,
    ):
        self.model, self.errors = model, model.errors
        self.literals = literals
        self.number_id = number_id
        self.strips = strips or {}
        self.trims = trims

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        segments, kept_ids = self._cut(texts)
        others = self.model.ids(tf.where(kept_ids < 0, segments.values, ""))
        ids = tf.concat([others, _one_where_kept(kept_ids, kept_ids)], axis=1)
        return joined_rows(ids, segments.row_splits)

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        """Returns the pieces of `texts` (strings `[B]`)."""
        segments, kept_ids = self._cut(texts)
        others = self.model.pieces(tf.where(kept_ids < 0, segments.values, ""))
        # The segments of a text follow each other without gaps, and so do those of all texts.
        points, splits = decode(segments.values)
        row_starts = tf.gather(segments.row_starts(), segments.value_rowids())
        text_starts = tf.gather(splits, row_starts)
        spans = splits[:-1], splits[1:]
        if self.trims:
            first, ends = trimmed(white_space()(points.values) > 0, *spans)
            spans = first, tf.maximum(first, ends)
        kept = kept_ids, *(places - text_starts for places in spans)
        shift = splits[:-1] - text_starts
        shifts = tf.zeros_like(kept_ids), shift, shift

        def merge(inside: tf.RaggedTensor, kept: tf.Tensor, shift: tf.Tensor) -> tf.RaggedTensor:
            inside = inside.with_values(inside.values + tf.gather(shift, inside.value_rowids()))
            merged = tf.concat([inside, _one_where_kept(kept, kept_ids)], axis=1)
            return joined_rows(merged, segments.row_splits)

        return PlacedIds(*map(merge, others, kept, shifts))

    def _cut(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns segments `[B, (S)]` and, flat, the id of each (or -1)."""
        literals = sorted(self.literals, key=len, reverse=True)
        patterns = [self._pattern(literal) for literal in literals]
        if self.number_id is not None:
            patterns.append(NUMBER)
        pattern = "|".join(patterns)
        # tensorflow-text's `regex_split` would end a text at NUL.
        marked = tf.strings.regex_replace(checked(texts, self.errors), pattern, CUT + rb"\0" + CUT)
        segments = tf.strings.split(marked, CUT)
        flat = segments.values
        ids = tf.fill(tf.shape(flat), -1)
        if self.number_id is not None:
            ids = tf.where(tf.strings.regex_full_match(flat, NUMBER), self.number_id, ids)
        for literal, token_id in self.literals.items():
            is_literal = flat == literal
            if literal in self.strips:
                is_literal = tf.strings.regex_full_match(flat, self._pattern(literal))
            ids = tf.where(is_literal, token_id, ids)
        return segments, ids

    def _pattern(self, literal: str) -> str:
        before, after = self.strips.get(literal, (False, False))
        return SPACES * before + re.escape(literal) + SPACES * after


def _one_where_kept(values: tf.Tensor, kept_ids: tf.Tensor) -> tf.RaggedTensor:
    """Returns ragged `[S, (0 or 1)]`: the values of the segments that are kept whole."""
    kept = kept_ids >= 0
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(values, kept), tf.cast(kept, tf.int64), validate=False
    )
