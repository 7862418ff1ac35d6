"""Byte-pair encoding of characters in the graph, as Hugging Face's `tokenizers` computes it.

A character that is no piece becomes the pieces of its bytes, `<0x00>` to `<0xFF>` (byte fallback).
Such a tokenizer does not split a text into words, so it is cut where no merge joins two characters.
The symbols of all different parts are merged together.

Glossary: `B` strings, `C` code points of all strings, `W` parts, `U` different parts, `S` symbols
of all different parts, `T` pieces of a string.

References: Kudo and Richardson, arXiv 1808.06226, which has it from BPE of sentencepiece;
huggingface/tokenizers `bpe/model.rs`.
"""

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import repeated, row_ids
from bert_tf.errors import DataError
from bert_tf.text import code_points
from bert_tf.text.code_points import CodePointTable, PlacedIds, SparseTable, checked
from bert_tf.text.merges import Merges
from bert_tf.text.subword_definition import Parts

_BLANK = 0x20
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class CharacterPairs(code_points.PieceModel):
    """Converts text to ids.

    Args:
        parts: The definition of the tokenizer.

    Raises:
        DataError: If a byte, or a part or the result of a merge, is not a piece.
    """

    def __init__(self, parts: Parts):
        ids = parts.model["vocab"]
        missing = next((piece for piece in BYTE_PIECES if piece not in ids), None)
        if missing is not None:
            raise DataError(
                "With `byte_fallback`, the vocabulary must contain the pieces of all 256 bytes, "
                f"<0x00> to <0xFF>. Received: no piece {missing}."
            )
        self._splits = parts.split_at_white_space
        self._merges = Merges(ids, parts.merges)
        self._byte_ids = np.array([ids[piece] for piece in BYTE_PIECES], np.int32)
        of_characters = np.full(code_points.NUM_CODE_POINTS, -1, np.int32)
        for piece, index in ids.items():
            if len(piece) == 1:
                of_characters[ord(piece)] = index
        self._character_ids = CodePointTable(of_characters)
        ends = {(a[-1], b[0]) for a, b in parts.merges}
        joins = np.unique(np.array([code_points.pair(ord(a), ord(b)) for a, b in ends], np.int64))
        self._joins = SparseTable(joins, np.ones_like(joins), 0)
        # A byte joins what is next to it if any merge has one at this place.
        of_bytes = {*BYTE_PIECES}
        size = len(BYTE_PIECES[0])
        self._bytes_join = any(
            a[-size:] in of_bytes or b[:size] in of_bytes for a, b in parts.merges
        )

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        points, row_splits = code_points.decode(checked(texts, self.errors))
        values, before = points.values, tf.roll(points.values, 1, 0)
        joins = self._joins(before, values) > 0
        if self._bytes_join:
            is_byte = self._character_ids(values) < 0
            joins |= is_byte | tf.roll(is_byte, 1, 0)
        begins_word = points.starts_row()
        if self._splits:
            begins_word |= before == _BLANK
        is_start = begins_word | ~joins
        parts = code_points.strings_from(points, tf.where(is_start)[:, 0], tf.size(texts, tf.int64))
        ids, begins, ends = code_points.pieces_of_words(parts, self._merge)
        sources, within = repeated(self._sizes(values))
        points = points.gather(sources)  # one for each symbol
        ids = self.marked(ids, tf.gather(tf.gather(begins_word, sources) & (within == 0), begins))
        first, last = tf.gather(points.first, begins), tf.gather(points.last, ends - 1)
        return code_points.placed(row_splits, ids, first, last + 1)

    def _sizes(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the number of symbols of each code point, int64."""
        return tf.where(self._character_ids(values) < 0, code_points.utf8_lengths(values), 1)

    def _merge(self, parts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the ids (int32) of the pieces of parts `[U]`, their first symbols, row splits."""
        decoded = tf.strings.unicode_decode(parts, "UTF-8")  # ragged int32 [U, (characters)]
        encoded = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(parts), tf.uint8), tf.int32)
        sizes, lengths = self._sizes(decoded.values), code_points.utf8_lengths(decoded.values)
        sources, within = repeated(sizes)  # [S]
        places = tf.gather(tf.cumsum(lengths, exclusive=True), sources) + within
        symbols = tf.gather(self._character_ids(decoded.values), sources)
        of_bytes = tf.gather(
            tf.constant(self._byte_ids), tf.cast(tf.gather(encoded, places), tf.int32)
        )
        symbols = tf.where(symbols < 0, of_bytes, symbols)
        splits = tf.gather(tf.pad(tf.cumsum(sizes), [[1, 0]]), decoded.row_splits)
        size = tf.size(symbols, tf.int64)
        done = self._merges(symbols, row_ids(splits), tf.range(size), tf.fill([size], -1))
        begins = tf.where(done >= 0)[:, 0]
        return tf.gather(done, begins), begins, splits
