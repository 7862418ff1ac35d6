"""Special tokens in the text, and numbers, that become one token before the text is split.

Glossary: `B` strings, `S` segments of strings, `T` pieces of a string.
"""

import functools
import re
from collections.abc import Iterable

import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.text import code_points
from bert_tf.text.code_points import PieceModel, PlacedIds, StringTable, checked

SPACES = f"[{code_points.character_class(code_points.WHITE_SPACE)}]*"
CUT = b"\xff"  # marks where to cut; UTF-8 does not have it
# A number that is not part of an English word: 12, 1,234.5, 3rd and ２００. RE2's `\b` knows only
# ASCII, so there is a boundary between a number and an ideograph. A percent sign is not part of it.
_WIDE_DIGITS = "[\uff10-\uff19]"
NUMBER = (
    r"\b[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?i:st|nd|rd|th)?\b"
    f"|{_WIDE_DIGITS}+(?:[,，]{_WIDE_DIGITS}{{3}})*(?:[.．]{_WIDE_DIGITS}+)?"
)


class KeptWhole(PieceModel):
    """Converts text to ids, of which some parts are kept whole.

    Args:
        model: Converts the rest of the text.
        patterns: What is kept whole, as patterns of RE2, with its id.
    """

    def __init__(self, model: PieceModel, patterns: dict[str, int]):
        self.model, self.errors = model, model.errors
        self.patterns = patterns
        self._around = functools.cache(lambda model: KeptWhole(model, patterns))
        # A model may have hundreds of literal texts; they are found in one look-up.
        texts = {pattern: re.sub(r"(?s)\\(.)", r"\1", pattern) for pattern in patterns}
        literal = {pattern: text for pattern, text in texts.items() if re.escape(text) == pattern}
        literals = {text.encode(): patterns[pattern] for pattern, text in literal.items()}
        self._literals = StringTable(literals) if literals else None
        self._others = [pattern for pattern in patterns if pattern not in literal]

    def for_texts(self, columns: list[tf.Tensor]) -> PieceModel:
        """Returns the model for these strings: around that which its model needs for them."""
        model = self.model.for_texts(columns)
        return self if model is self.model else self._around(model)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        segments, kept_ids = self._cut(texts)
        others = self.model.ids(tf.where(kept_ids < 0, segments.values, ""))
        ids = tf.concat([others, _one_where_kept(kept_ids, kept_ids)], axis=1)
        return code_points.joined_rows(ids, segments.row_splits)

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        segments, kept_ids = self._cut(texts)
        others = self.model.pieces(tf.where(kept_ids < 0, segments.values, ""))
        # The segments of a text follow each other without gaps, and so do those of all texts.
        _, splits = code_points.decode(segments.values)
        shifts = tf.zeros_like(kept_ids), splits[:-1], splits[:-1]

        def merge(inside: tf.RaggedTensor, kept: tf.Tensor, shift: tf.Tensor) -> tf.RaggedTensor:
            inside = inside.with_values(
                inside.values + tf.gather(shift, row_ids(inside.row_splits))
            )
            merged = tf.concat([inside, _one_where_kept(kept, kept_ids)], axis=1)
            return code_points.joined_rows(merged, segments.row_splits)

        ids, first, ends = map(merge, others, (kept_ids, splits[:-1], splits[1:]), shifts)
        row_splits = tf.gather(splits, segments.row_splits)
        return code_points.placed(row_splits, ids, first.values, ends.values)

    def _cut(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns segments `[B, (S)]` and, flat, the id of each (or -1)."""
        pattern = "|".join(self.patterns)
        # tensorflow-text's `regex_split` would end a text at NUL.
        marked = tf.strings.regex_replace(checked(texts, self.errors), pattern, CUT + rb"\0" + CUT)
        segments = tf.strings.split(marked, CUT)
        ids = tf.fill(tf.shape(segments.values), -1)
        if self._literals is not None:
            ids = self._literals(segments.values)
        for pattern in reversed(self._others):  # the first that fits counts
            is_match = tf.strings.regex_full_match(segments.values, pattern)
            ids = tf.where(is_match, self.patterns[pattern], ids)
        return segments, ids


def literal_patterns(literals: Iterable[tuple[str, int, bool, bool]]) -> dict[str, int]:
    """Returns the patterns of texts that are not empty, longest first, with their ids.

    The flags say whether a text takes the white space before and after it.
    """
    ordered = sorted(literals, key=lambda literal: len(literal[0]), reverse=True)
    return {
        SPACES * before + re.escape(text) + SPACES * after: token_id
        for text, token_id, before, after in ordered
        if text
    }


def _one_where_kept(values: tf.Tensor, kept_ids: tf.Tensor) -> tf.RaggedTensor:
    """Returns ragged `[S, (0 or 1)]`: the values of the segments that are kept whole."""
    kept = kept_ids >= 0
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(values, kept), tf.cast(kept, tf.int64), validate=False
    )
