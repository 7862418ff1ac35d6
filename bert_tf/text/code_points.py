"""Texts as one vector of code points, and what Hugging Face's `tokenizers` knows about characters.

Glossary: `B` strings, `C` code points of all strings.
"""

import functools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text import unicode_tables as unicode
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import Pieces

CODE_POINT_BITS = 21
# `char::is_whitespace` of Rust and `\s` of Oniguruma: the property White_Space.
WHITE_SPACE = (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))
WHITE_SPACE += (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)


class CodePoints(NamedTuple):
    """Code points, and the range of original ones that each was made of."""

    values: tf.Tensor  # int32 [C]
    rows: tf.Tensor  # the string of each, int64 [C]
    first: tf.Tensor  # the positions in the original vector, both int64 [C]
    last: tf.Tensor

    def gather(self, places: tf.Tensor) -> "CodePoints":
        """Returns those at `places`."""
        return CodePoints(*(tf.gather(field, places) for field in self))

    def keep(self, mask: tf.Tensor) -> "CodePoints":
        """Returns those for which `mask` is True."""
        return self.gather(tf.where(mask)[:, 0])

    def starts_row(self) -> tf.Tensor:
        """Returns which are the first of their string, bool `[C]`."""
        return starts(self.rows)


class Decoded(NamedTuple):
    """Decoded strings: `unicode_decode_with_offsets`, malformed bytes as U+FFFD."""

    points: CodePoints
    row_starts: tf.Tensor  # int64 [B]
    byte_starts: tf.Tensor  # int64 [C]
    byte_ends: tf.Tensor  # int64 [C]

    def pieces(self, ids: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> Pieces:
        """Returns pieces from the positions (int64) of their first and last code points."""
        rows, size = tf.gather(self.points.rows, first), tf.size(self.row_starts, tf.int64)
        ids = tf.RaggedTensor.from_value_rowids(ids, rows, size, validate=False)
        byte_spans = tf.gather(self.byte_starts, first), tf.gather(self.byte_ends, last)
        row_starts = tf.gather(self.row_starts, rows)
        spans = *byte_spans, first - row_starts, last + 1 - row_starts
        return Pieces(ids, *map(ids.with_values, spans))


class PieceModel:
    """Converts text to pieces. A subclass says how.

    Attributes:
        splitter: Checks the text.
    """

    splitter = WordSplitter(errors="replace")

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        return self.pieces(texts).ids

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces` of `texts` (strings `[B]`)."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `pieces`.")


def decode(texts: tf.Tensor) -> Decoded:
    """Decodes strings `[B]`."""
    ragged, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
    rows, places = ragged.value_rowids(), tf.range(tf.size(ragged.values, tf.int64))
    lengths = tf.gather(tf.cast(tf.strings.length(texts), tf.int64), rows)
    is_last = places == tf.gather(ragged.row_splits, rows + 1) - 1
    ends = tf.where(is_last, lengths, tf.roll(offsets.values, -1, 0))
    points = CodePoints(ragged.values, rows, places, places)
    return Decoded(points, ragged.row_starts(), offsets.values, ends)


def trimmed(pieces: Pieces, texts: tf.Tensor) -> Pieces:
    """Returns the pieces of `texts` (strings `[B]`) without white space before them."""
    decoded, rows = decode(texts), pieces.ids.value_rowids()
    row_starts = tf.gather(decoded.row_starts, rows)
    is_space = white_space()(decoded.points.values) > 0
    text = tf.where(~is_space)[:, 0]  # the positions of the other characters
    next_text = tf.searchsorted(text, pieces.char_starts.values + row_starts)
    size = tf.size(is_space, tf.int64)
    first = tf.gather(tf.concat([text, [size]], axis=0), next_text)
    ends = pieces.char_ends.values
    char_starts = tf.minimum(first - row_starts, ends)
    byte_starts = tf.gather(tf.concat([decoded.byte_starts, [0]], axis=0), first)
    byte_ends = pieces.byte_ends.values
    byte_starts = tf.where(char_starts < ends, byte_starts, byte_ends)
    return pieces._replace(
        char_starts=pieces.ids.with_values(char_starts),
        byte_starts=pieces.ids.with_values(byte_starts),
    )


def starts(numbers: tf.Tensor) -> tf.Tensor:
    """Returns which elements of a sorted vector differ from the one before, bool."""
    return tf.concat([tf.ones_like(numbers[:1], tf.bool), numbers[1:] != numbers[:-1]], axis=0)


def places_in_runs(is_start: tf.Tensor) -> tf.Tensor:
    """Returns the position of each element in its run, int64; runs begin where `is_start` is."""
    places = tf.range(tf.size(is_start, tf.int64))
    runs = tf.cumsum(tf.cast(is_start, tf.int64)) - 1
    return places - tf.gather(tf.boolean_mask(places, is_start), runs)


def mask_of(places: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns bool `[size]`, True at `places` (int64)."""
    return tf.scatter_nd(places[:, tf.newaxis], tf.ones_like(places), [size]) > 0


def pieces_of_words(
    code_points: tf.Tensor, is_start: tf.Tensor, segment: Callable
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the ids (int32) of the pieces of all words, and where each begins and ends (int64).

    Args:
        code_points: Those of words that follow each other without gaps, int32 `[C]`.
        is_start: Which of them begin a word.
        segment: Returns the ids of the pieces of different words (strings), where each begins, and
            the row splits of the words. It decides about the unit of these positions.
    """
    words = tf.RaggedTensor.from_row_starts(code_points, tf.where(is_start)[:, 0], validate=False)
    different, index = tf.unique(tf.strings.unicode_encode(words, "UTF-8"))
    ids, begins, word_splits = segment(different)
    sizes = tf.concat([begins[1:], word_splits[-1:]], axis=0)[: tf.size(begins)] - begins
    row_splits = tf.searchsorted(begins, word_splits, out_type=tf.int64)
    order = tf.RaggedTensor.from_row_splits(tf.range(tf.size(ids)), row_splits, validate=False)
    order = tf.gather(order, index).values
    sizes = tf.gather(sizes, order)
    ends = tf.cumsum(sizes)
    return tf.gather(ids, order), ends - sizes, ends


def utf8_lengths(code_points: tf.Tensor) -> tf.Tensor:
    """Returns the number of bytes of each code point, int64."""
    longer = [tf.cast(code_points >= least, tf.int64) for least in (0x80, 0x800, 0x10000)]
    return 1 + tf.add_n(longer)


class CodePointTable:
    """A value for each code point, int32 `[NUM_CODE_POINTS]`, in a two-level table."""

    def __init__(self, values: np.ndarray):
        blocks = np.ascontiguousarray(values, np.int32).reshape(-1, unicode.PAGE_SIZE)
        distinct: dict[bytes, int] = {}
        pages = [distinct.setdefault(block.tobytes(), len(distinct)) for block in blocks]
        self._pages = np.array(pages, np.int32)
        self._values = np.frombuffer(b"".join(distinct), np.int32)

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        page = tf.gather(tf.constant(self._pages), code_points // unicode.PAGE_SIZE)
        places = page * unicode.PAGE_SIZE + code_points % unicode.PAGE_SIZE
        return tf.gather(tf.constant(self._values), places)


class SparseTable:
    """An int32 value for each of some int64 keys, below 2**63 - 1, and one for all others."""

    def __init__(self, values: dict[int, int], default: int):
        keys = sorted(values)
        self._keys = np.array([*keys, 2**63 - 1], np.int64)
        self._values = np.array([*(values[key] for key in keys), default], np.int32)

    def __call__(self, keys: tf.Tensor) -> tf.Tensor:
        places = tf.searchsorted(tf.constant(self._keys), keys)
        is_known = tf.gather(tf.constant(self._keys), places) == keys
        return tf.where(is_known, tf.gather(tf.constant(self._values), places), self._values[-1])


@functools.cache
def white_space() -> CodePointTable:
    """Returns a table that is 1 at white space, else 0."""
    return CodePointTable(np.isin(np.arange(unicode.NUM_CODE_POINTS), WHITE_SPACE))


@functools.cache
def hugging_face_data() -> tuple[dict[str, np.ndarray], dict[str, dict[str, str]]]:
    """Returns the properties (bool) and mappings of `hugging_face_data.txt`."""
    kinds = ("letter", "number", "extend", "prepend")
    properties = {kind: np.zeros(unicode.NUM_CODE_POINTS, bool) for kind in kinds}
    syllables = unicode.unicode_data().decomposition
    syllables = {chr(c): "".join(map(chr, syllables[c])) for c in unicode.HANGUL_SYLLABLES}
    mappings: dict[str, dict[str, str]] = {"lower": {}, "unaccented": syllables}
    path = pathlib.Path(__file__).with_name("hugging_face_data.txt")
    for line in path.read_text(encoding="ascii").splitlines()[2:]:
        kind, first, last, *values = line.split("\t")
        if kind in properties:
            properties[kind][int(first, 16) : int(last, 16) + 1] = True
        else:
            mappings[kind][chr(int(first, 16))] = "".join(
                chr(int(v, 16)) for v in values[0].split()
            )
    return properties, mappings
