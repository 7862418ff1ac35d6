"""Texts as one vector of code points, the pieces that are made of them, and their slices.

Glossary: `B` strings, `C` code points of all strings, `T` pieces of a string, `S` slices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.assertions import assert_that
from bert_tf.base.ragged_rows import repeated, row_ids

# The beginning of the error that the graph raises.
MALFORMED_TEXT = "Every text must be valid UTF-8."
NUM_CODE_POINTS = 0x110000
_VALID = r"[\x00-\x{d7ff}\x{e000}-\x{10ffff}]*"
# Is added to the ids of pieces that begin a word; a definition has fewer pieces.
WORD_START = 1 << 30
PAGE_BITS = 8
PAGE_SIZE = 1 << PAGE_BITS
# `char::is_whitespace` of Rust and `\s` of Oniguruma: the property White_Space.
WHITE_SPACE = (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))
WHITE_SPACE += (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)


class Pieces(NamedTuple):
    """Ids (int32) of pieces and their positions in the string (int64), all ragged `[B, (T)]`.

    The positions are the first byte and code point of each piece, and those after its last ones.
    """

    ids: tf.RaggedTensor
    byte_starts: tf.RaggedTensor
    byte_ends: tf.RaggedTensor
    char_starts: tf.RaggedTensor
    char_ends: tf.RaggedTensor


class PlacedIds(NamedTuple):
    """Pieces with positions of code points only. Models return these."""

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor

    def trimmed(self, texts: tf.Tensor) -> "PlacedIds":
        """Returns ids whose spans do not begin with white space; `texts` are the strings `[B]`."""
        points, row_splits = decode(texts)
        row_starts = tf.gather(row_splits, row_ids(self.ids.row_splits))
        first, ends = (places.values + row_starts for places in self[1:])
        first, _ = trimmed(white_space()(points.values) > 0, first, ends)
        return placed(row_splits, self.ids, first, ends)

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces`; `texts` are the strings `[B]`."""
        _, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        lengths = tf.cast(tf.strings.length(texts), tf.int64)
        offsets = tf.concat([offsets, lengths[:, tf.newaxis]], axis=1)  # ragged [B, (characters+1)]
        row_starts = tf.gather(offsets.row_starts(), row_ids(self.ids.row_splits))
        in_bytes = (
            self.ids.with_values(tf.gather(offsets.values, row_starts + places.values))
            for places in self[1:]
        )
        return Pieces(self.ids, *in_bytes, self.starts, self.ends)


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

    def with_marks(self, before: tf.Tensor, mark: int) -> tuple["CodePoints", tf.Tensor]:
        """Returns code points with a `mark` before some (bool `[C]`), and which are marks."""
        sources, _ = repeated(1 + tf.cast(before, tf.int64))
        is_mark = tf.gather(before, sources) & starts(sources)
        points = self.gather(sources)
        return points._replace(values=tf.where(is_mark, mark, points.values)), is_mark

    def starts_row(self) -> tf.Tensor:
        """Returns which are the first of their string, bool `[C]`."""
        return starts(self.rows)


def placed(row_splits: tf.Tensor, ids: tf.RaggedTensor, *spans: tf.Tensor) -> PlacedIds:
    """Returns pieces, ragged `[B, (T)]`, from their spans in the vector `[C]`, int64."""
    row_starts = tf.gather(row_splits, row_ids(ids.row_splits))
    return PlacedIds(ids, *(ids.with_values(places - row_starts) for places in spans))


class PieceModel:
    """Converts text to pieces. A subclass says how.

    Attributes:
        errors: What to do with text that is not UTF-8, as in `BertTokenizer`. None if all text is
            UTF-8.
        takes_ascii: Whether all text is ASCII, in which positions of characters are those of bytes.
        marks_words: Whether `WORD_START` is added to the ids of pieces that begin a word of the
            `pre_tokenizer`.
    """

    errors: str | None = None
    takes_ascii = False
    marks_words = False

    def for_texts(self, columns: list[tf.Tensor]) -> "PieceModel":
        """Returns a model of the same ids for these strings `[B]`, faster if they are eager."""
        return self

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        return self.pieces(texts).ids

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        """Returns the pieces of `texts` (strings `[B]`)."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `pieces`.")

    def marked(self, ids: tf.RaggedTensor, begin_word: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids with the marks of `marks_words`; `begin_word` is bool `[pieces]`."""
        if not self.marks_words:
            return ids
        return ids.with_values(ids.values + WORD_START * tf.cast(begin_word, tf.int32))


def checked(texts: tf.Tensor, errors: str | None) -> tf.Tensor:
    """Returns strings `[B]` in UTF-8; `errors` as in `BertTokenizer`, None does not check them.

    Raises `tf.errors.InvalidArgumentError` if errors="strict" and a text is not UTF-8. The message
    names the rows.
    """
    if errors is None:
        return texts
    if errors == "replace":
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    valid = tf.strings.regex_full_match(texts, _VALID)  # RE2 reads only UTF-8
    check = assert_that(
        tf.reduce_all(valid),
        [
            f"{MALFORMED_TEXT} Received: malformed bytes in row(s)",
            tf.where(~valid)[:, 0],
            "Decode the text with its real encoding, or create the tokenizer with "
            "errors='replace'.",
        ],
        summarize=20,
    )
    with tf.control_dependencies(check):
        return tf.identity(texts)


def decode(texts: tf.Tensor) -> tuple[CodePoints, tf.Tensor]:
    """Decodes strings `[B]`."""
    ragged = tf.strings.unicode_decode(texts, "UTF-8")
    places = tf.range(tf.size(ragged.values, tf.int64))
    return CodePoints(ragged.values, row_ids(ragged.row_splits), places, places), ragged.row_splits


def strings_from(points: CodePoints, first: tf.Tensor, num_rows: tf.Tensor) -> tf.RaggedTensor:
    """Returns the parts that begin at `first` (int64 `[W]`) as strings, ragged `[B, (W)]`."""
    parts = tf.RaggedTensor.from_row_starts(points.values, first, validate=False)
    rows = tf.gather(points.rows, first)
    parts = tf.RaggedTensor.from_value_rowids(parts, rows, num_rows, validate=False)
    return tf.strings.unicode_encode(parts, "UTF-8")


def trimmed(is_space: tf.Tensor, first: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where spans in a vector begin and end without the spaces at their ends, int64.

    `is_space` is bool `[C]`. If a span has only spaces, the end is not after its old beginning, and
    the beginning is its old end.
    """
    text = tf.where(~is_space)[:, 0]  # the positions of the others
    size = tf.size(is_space, tf.int64)
    next_text = tf.gather(tf.concat([text, [size]], axis=0), tf.searchsorted(text, first))
    after_text = tf.gather(tf.concat([[0], text + 1], axis=0), tf.searchsorted(text, ends))
    return tf.minimum(next_text, ends), after_text


def starts(numbers: tf.Tensor) -> tf.Tensor:
    """Returns which elements of a vector differ from the one before, bool."""
    return tf.concat([tf.ones_like(numbers[:1], tf.bool), numbers[1:] != numbers[:-1]], axis=0)


def places_in_runs(is_start: tf.Tensor) -> tf.Tensor:
    """Returns the position of each element in its run, int64; runs begin where `is_start` is."""
    places = tf.range(tf.size(is_start, tf.int64))
    runs = tf.cumsum(tf.cast(is_start, tf.int64)) - 1
    return places - tf.gather(tf.boolean_mask(places, is_start), runs)


def mask_of(places: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns bool `[size]`, True at `places` (int64)."""
    return tf.scatter_nd(places[:, tf.newaxis], tf.ones_like(places), [size]) > 0


def joined_rows(parts: tf.RaggedTensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """Joins adjacent rows of `parts`; `row_splits` says which of them become one row."""
    return tf.RaggedTensor.from_row_splits(
        parts.values, tf.gather(parts.row_splits, row_splits), validate=False
    )


def pieces_of_words(
    words: tf.RaggedTensor, segment: Callable
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Returns the ids of the pieces of words `[B, (words)]`, ragged `[B, (T)]`, and their places.

    `segment` returns the ids (int32) of the pieces of different words (strings), where each begins,
    and the row splits of the words. It decides about the unit of the places, int64, where each
    piece begins and ends in all words, which have no gaps between them.
    """
    different, index = tf.unique(words.values)
    ids, begins, word_splits = segment(different)
    sizes = tf.concat([begins[1:], word_splits[-1:]], axis=0)[: tf.size(begins)] - begins
    row_splits = tf.searchsorted(begins, word_splits, out_type=tf.int64)
    order = tf.RaggedTensor.from_row_splits(tf.range(tf.size(ids)), row_splits, validate=False)
    order = tf.gather(order, index)  # [W, (T)]
    sizes = tf.gather(sizes, order.values)
    ends = tf.cumsum(sizes)
    ids = joined_rows(order.with_values(tf.gather(ids, order.values)), words.row_splits)
    return ids, ends - sizes, ends


def character_class(code_points: Sequence[int] | np.ndarray) -> str:
    """Returns sorted code points as the inside of a character class of RE2."""
    runs = np.split(code_points, np.where(np.diff(code_points) > 1)[0] + 1)
    return "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in runs if run.size)


def utf8_lengths(code_points: tf.Tensor) -> tf.Tensor:
    """Returns the number of bytes of each code point, int64."""
    longer = [tf.cast(code_points >= least, tf.int64) for least in (0x80, 0x800, 0x10000)]
    return 1 + tf.add_n(longer)


def pair(first: np.ndarray | tf.Tensor, second: np.ndarray | tf.Tensor):
    """Returns two numbers below 2**31, both int64, as one."""
    return first * 2**31 + second


def numbers(text: str) -> np.ndarray:
    """Returns the code points of a text, int32."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32)


class SparseTable:
    """An int32 value for some pairs of numbers, which are one key each, and one for all others."""

    def __init__(self, keys: Sequence[int], values: Sequence[int], default: int):
        keys, values = np.asarray(keys, np.int64), np.asarray(values, np.int32)
        if np.any(keys[1:] < keys[:-1]):
            order = np.argsort(keys)
            keys, values = keys[order], values[order]
        self._keys = np.append(keys, 2**63 - 1)
        self._values = np.append(values, np.int32(default))

    def __call__(self, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Returns the values of pairs of int32 numbers."""
        keys = pair(tf.cast(first, tf.int64), tf.cast(second, tf.int64))
        places = tf.searchsorted(tf.constant(self._keys), keys)
        is_known = tf.gather(tf.constant(self._keys), places) == keys
        return tf.where(is_known, tf.gather(tf.constant(self._values), places), self._values[-1])


class StringTable:
    """An int32 value for some strings, and -1 for all others.

    It has no resource, unlike the tables of `tf.lookup`, so any graph can hold it.
    """

    def __init__(self, values: dict[bytes, int]):
        keys = np.array([*values], object)
        with tf.init_scope():
            hashes = _hashes(keys).numpy()
        order = np.argsort(hashes)
        self._hashes, self._keys = hashes[order], keys[order]
        self._values = np.array([*values.values()], np.int32)[order]

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns the values of strings `[S]`."""
        places = tf.searchsorted(tf.constant(self._hashes), _hashes(strings))
        places = tf.minimum(places, len(self._keys) - 1)
        is_known = tf.gather(tf.constant(self._keys), places) == strings
        return tf.where(is_known, tf.gather(tf.constant(self._values), places), -1)


def _hashes(strings: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(strings, 2**62)


class CodePointTable:
    """A value for each code point, int32, in a two-level table; repeated pages are stored once.

    Args:
        values: `[NUM_CODE_POINTS]`.
    """

    def __init__(self, values: np.ndarray):
        blocks = np.ascontiguousarray(values, np.int32).reshape(-1, PAGE_SIZE)
        distinct: dict[bytes, int] = {}
        pages = [distinct.setdefault(block.tobytes(), len(distinct)) for block in blocks]
        self._pages = np.array(pages, np.int32)
        self._values = np.frombuffer(b"".join(distinct), np.int32)

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        """Returns the values of int32 code points."""
        numbers = tf.bitwise.right_shift(code_points, PAGE_BITS)
        places = tf.gather(tf.constant(self._pages), numbers) * PAGE_SIZE
        places += tf.bitwise.bitwise_and(code_points, PAGE_SIZE - 1)
        return tf.gather(tf.constant(self._values), places)


class Replacements:
    """Replaces some code points by any number of others.

    Args:
        results: The replacements of the rules 1, 2, …. Code points with the rule 0 do not change.
    """

    def __init__(self, results: Sequence[str]):
        lengths = np.array([1, *map(len, results)], np.int64)
        self._lengths, self._starts = lengths, np.cumsum(lengths) - lengths
        self._values = numbers("\0" + "".join(results))

    def __call__(self, code_points: tf.Tensor, rules: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the new code points, and the index of the one that each was made of."""
        sources, within = repeated(tf.gather(tf.constant(self._lengths), rules))
        rules = tf.gather(rules, sources)
        places = tf.gather(tf.constant(self._starts), rules) + within
        values = tf.gather(tf.constant(self._values), places)
        return tf.where(rules > 0, values, tf.gather(code_points, sources)), sources


@functools.cache
def white_space() -> CodePointTable:
    """Returns a table that is 1 at white space, else 0."""
    return CodePointTable(np.isin(np.arange(NUM_CODE_POINTS), WHITE_SPACE))


class TextSlices:
    """Texts that are decoded once and sliced any number of times.

    `tf.strings.substr` would copy the whole text for every slice.

    Args:
        texts: Strings `[B]` in UTF-8.

    Example:
        >>> rows = tf.constant([0, 0], tf.int64)
        >>> starts, ends = tf.constant([0, 3], tf.int64), tf.constant([2, 9], tf.int64)
        >>> [text.decode() for text in TextSlices(["Él duerme"])(rows, starts, ends).numpy()]
        ['Él', 'duerme']
    """

    def __init__(self, texts: tf.Tensor):
        decoded = tf.strings.unicode_decode(texts, "UTF-8")  # ragged [B, (characters)]
        self._characters = decoded.values
        self._row_starts = decoded.row_starts()

    def __call__(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns the characters `[starts, ends)` of the texts `rows`, all int64 `[S]`."""
        first = tf.gather(self._row_starts, rows)
        places = tf.ragged.range(first + starts, first + ends)  # ragged [S, (characters)]
        slices = places.with_values(tf.gather(self._characters, places.values))
        return tf.strings.unicode_encode(slices, "UTF-8")
