"""Converts text to WordPiece ids in the graph: an exact path for any text, a fast one for most.

The fast path does what tensorflow-text's `FastBertTokenizer` does, which gives the ids of
google-research/bert only for texts of `FastCharacters`. From other strings, the words with other
characters are cut out at the spaces around them, which are always word boundaries. These words take
the exact path, through `WordSplitter`, the rest takes the fast path, and the pieces are put back in
order. If a batch with such strings has few bytes, all of it takes the exact path. If not, so do
strings of ideographs, whose ids the exact path reads from a table.

`FastBertTokenizer` treats other characters differently: it applies compatibility decompositions
(NFKC), replaces control characters by spaces instead of removing them, and follows the Unicode
version of its ICU. Therefore each character is tried once, and the result is compared with the
table of `unicode_tables`. Characters whose normalized form depends on their neighbors (the capital
sigma, and marks that NFD reorders) or has several code points are left out.

Eagerly, `for_texts` chooses among these paths, so that a process traces only those that its texts
need: printable ASCII needs no table of characters.

Glossary: `B` strings, `S` segments of strings, `W` words, `T` pieces of a string or a word,
`K` code points of all words.

References: google-research/bert `tokenization.py`; Song et al., "Fast WordPiece Tokenization",
arXiv 2012.15524.
"""

import dataclasses
import functools
import re
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.text import tensorflow_text
from bert_tf.text import unicode_tables as unicode
from bert_tf.text.code_points import (
    NUM_CODE_POINTS,
    CodePointTable,
    PieceModel,
    PlacedIds,
    character_class,
    checked,
    joined_rows,
    utf8_lengths,
)
from bert_tf.text.vocabulary import CONTINUATION
from bert_tf.text.word_splitter import Words, WordSplitter

ASCII = r"\t\n\r -~"
# The characters that are tried, without ASCII. Left out are Hangul syllables, which become several
# characters, private use, and most of the higher planes.
_TRIED = (range(0x80, 0xAC00), range(0xF900, 0x10000), range(0x1F000, 0x1FB00))
# Letters that no other character is normalized to.
_BEFORE, _AFTER = "\u0e01", "\u0e02"
_PIECES = ["[UNK]", _BEFORE, _AFTER, CONTINUATION + _AFTER]
# The ids of `_BEFORE`, the character and `_AFTER`; -1 where there is no id.
_LETTER, _WORD, _SPACE, _REMOVED = [0, -1, -1, -1], [1, 0, 2, -1], [1, 2, -1, -1], [1, 3, -1, -1]


class FastCharacters(NamedTuple):
    """The contents of two character classes of RE2, both with printable ASCII.

    `FastBertTokenizer` limits the bytes of a normalized word, the original its characters.

    Args:
        any_length: Characters that become ASCII, become a word of their own or are removed. A
            longer word of these has as many bytes as characters.
        all: `any_length` and others. None of the others becomes longer, so a text with few bytes
            has no word that is too long.
    """

    any_length: str
    all: str


@functools.cache
def fast_characters(splitter: WordSplitter) -> FastCharacters:
    """Tries the characters with the options of a `WordSplitter`."""
    lowercase, table = splitter.lowercase, splitter.table(*[splitter.strip_accents] * 2)
    # Another version of ICU may know more about the characters that are not assigned here.
    tried = [c for part in _TRIED for c in part if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    code_points = np.array(tried, np.int32)
    with tf.init_scope(), tf.device("CPU:0"):  # may be called while a graph is built
        entries = table.entries(code_points).numpy()

    def has(flags):
        return entries & flags != 0

    space, word = has(unicode.SPACE), has(unicode.CJK | unicode.PUNCTUATION)
    removed = ~has(unicode.KEPT) & ~space
    kinds = [removed[:, np.newaxis], space[:, np.newaxis], word[:, np.newaxis]]
    expected_ids = np.select(kinds, [_REMOVED, _SPACE, _WORD], _LETTER)
    normalized = code_points + (entries >> unicode.PAYLOAD_SHIFT)

    texts = [chr(c) for c in tried]
    wordpiece = tensorflow_text.build_wordpiece_model(_PIECES, 100, CONTINUATION, "[UNK]", False)
    normalizer = tensorflow_text.build_normalizer_model(lowercase)
    with tf.init_scope(), tf.device("CPU:0"):
        between = tf.constant([_BEFORE + text + _AFTER for text in texts])
        between = tensorflow_text.normalize(between, normalizer)
        ids = tensorflow_text.word_pieces(between, wordpiece)[0].to_tensor(-1, shape=[None, 4])
        received = tensorflow_text.normalize(tf.constant(texts), normalizer).numpy()
    # A space that stays as it is could be part of a piece.
    normalized = np.where(space, ord(" "), normalized)
    expected = ["" if gone else chr(c) for gone, c in zip(removed, normalized)]
    same = np.array([a.decode() == b for a, b in zip(received, expected)])
    same &= np.all(ids.numpy() == expected_ids, axis=1)
    same &= ~has(unicode.EXPANDS | unicode.REORDERS)
    if lowercase:
        same &= code_points != unicode.CAPITAL_SIGMA

    no_longer = np.array([len(a.encode()) <= len(b.encode()) for a, b in zip(expected, texts)])
    any_length = same & (removed | word | (normalized < 0x80))
    return FastCharacters(
        ASCII + character_class(code_points[any_length]),
        ASCII + character_class(code_points[any_length | same & no_longer]),
    )


MAX_UTF8_BYTES = 4
FEW_BYTES = 1000
# A control character, which tokenization removes, so it can mark where to cut.
_CUT = "\x01"
_is_ascii = re.compile(f"[{ASCII}]*".encode()).fullmatch


class _Path(PieceModel):
    """One way from texts to ids, for texts that fit it."""

    def __init__(self, ids, pieces, errors=None, takes_ascii=False):
        self.ids, self.pieces, self.errors, self.takes_ascii = ids, pieces, errors, takes_ascii


class WordPiece(PieceModel):
    """Converts text to ids; its arguments are those of `BertTokenizer`, and a splitter.

    Attributes:
        exact: The model that always takes the exact path.
    """

    def __init__(
        self,
        vocabulary: list[str],
        splitter: WordSplitter,
        unk_token: str,
        max_input_chars_per_word: int,
    ):
        self.splitter, self.errors = splitter, splitter.errors
        self.max_input_chars_per_word = max_input_chars_per_word
        # The limit in characters is applied before; this one only has to be large enough.
        self.max_bytes_per_word = MAX_UTF8_BYTES * max_input_chars_per_word
        self._vocabulary, self._unk_token = vocabulary, unk_token
        self._ascii = _Path(self._ascii_ids, self._ascii_pieces, takes_ascii=True)
        self.exact = _Path(self._exact_ids, self.pieces, self.errors)
        self._many = _Path(self._many_ids, self.pieces, self.errors)

    def for_texts(self, columns: list[tf.Tensor]) -> PieceModel:
        """Returns itself in a graph, and for eager strings what needs no more than they do."""
        if not tf.executing_eagerly():
            return self
        texts = (columns[0] if len(columns) == 1 else tf.concat(columns, axis=0)).numpy()
        if all(map(_is_ascii, texts)):
            return self._ascii
        return self.exact if sum(map(len, texts)) <= FEW_BYTES else self._many

    # Made when they are first needed, and stored as bytes: every graph creates its own constants.
    @functools.cached_property
    def _text_model(self) -> bytes:
        return self._build_model(self.max_input_chars_per_word, of_words=False)

    @functools.cached_property
    def _word_model(self) -> bytes:
        return self._build_model(self.max_bytes_per_word, of_words=True)

    def _build_model(self, max_bytes_per_word: int, of_words: bool) -> bytes:
        options = self._vocabulary, max_bytes_per_word, CONTINUATION, self._unk_token, of_words
        return tensorflow_text.build_wordpiece_model(*options)

    @functools.cached_property
    def _character_ids(self) -> CodePointTable:
        ids = np.full(NUM_CODE_POINTS, self._vocabulary.index(self._unk_token), np.int32)
        for index, piece in enumerate(self._vocabulary):
            if len(piece) == 1:
                ids[ord(piece)] = index
        return CodePointTable(ids)

    @functools.cached_property
    def _normalizer_model(self) -> bytes:
        return tensorflow_text.build_normalizer_model(self.splitter.lowercase)

    @functools.cached_property
    def _fast_characters(self) -> FastCharacters:
        # `errors` does not matter to characters.
        characters = fast_characters(dataclasses.replace(self.splitter, errors="strict"))
        if self.max_input_chars_per_word < MAX_UTF8_BYTES:  # one character may be too long
            characters = characters._replace(any_length=ASCII)
        return characters

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        few_bytes = tf.reduce_sum(tf.strings.length(texts)) <= FEW_BYTES
        return tf.cond(few_bytes, lambda: self._few_ids(texts), lambda: self._many_ids(texts))

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        """Returns the pieces of `texts` (strings `[B]`), always with the exact path."""
        words = self.splitter.split(checked(texts, self.errors))
        ids, starts, ends, too_long = self._pieces_of_words(words.characters)  # [W, (T)]
        word_of_piece = row_ids(ids.row_splits)
        byte_splits = tf.cumsum(utf8_lengths(words.characters.values))
        byte_splits = tf.concat([[0], byte_splits], axis=0)  # [K+1]
        word_bytes = tf.gather(byte_splits, words.characters.row_splits)  # [W+1]
        word_start = tf.gather(word_bytes, word_of_piece)
        start = word_start + starts.values
        end = tf.where(
            tf.gather(too_long, word_of_piece),
            tf.gather(word_bytes, word_of_piece + 1),
            word_start + ends.values,
        )
        # The first and the last code point of each piece.
        first = tf.searchsorted(byte_splits[:-1], start, out_type=tf.int64)
        last = tf.searchsorted(byte_splits[:-1], end, out_type=tf.int64) - 1
        values = ids.values, tf.gather(words.starts, first), tf.gather(words.ends, last)
        parts = (joined_rows(ids.with_values(field), words.row_splits) for field in values)
        return PlacedIds(*parts)

    def _is_short(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns which texts are fast because no word in them can be too long, bool `[B]`."""
        short = tf.strings.length(texts) <= self.max_input_chars_per_word
        return short & tf.strings.regex_full_match(texts, f"[{self._fast_characters.all}]*")

    def _ascii_pieces(self, texts: tf.Tensor) -> PlacedIds:
        """Returns the pieces of printable ASCII, which are as long in bytes as in characters."""
        texts = tf.strings.lower(texts) if self.splitter.lowercase else texts
        return PlacedIds(*tensorflow_text.word_pieces(texts, self._text_model))

    def _ascii_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._ascii_pieces(texts).ids

    def _is_fast(self, texts: tf.Tensor) -> tf.Tensor:
        return tf.strings.regex_full_match(texts, f"[{self._fast_characters.any_length}]*")

    def _fast_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        normalized = tensorflow_text.normalize(texts, self._normalizer_model)
        return tensorflow_text.word_pieces(normalized, self._text_model)[0]

    def _few_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts so short that cutting them would take longer than it saves."""
        is_fast = tf.reduce_all(self._is_fast(texts) | self._is_short(texts))
        return tf.cond(is_fast, lambda: self._fast_ids(texts), lambda: self._exact_ids(texts))

    def _many_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        is_fast = self._is_fast(texts) & ~_is_dense(texts)
        ways = (lambda: self._fast_ids(texts), lambda: self._mixed_ids(texts, is_fast))
        return tf.cond(tf.reduce_all(is_fast), *ways)

    def _exact_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._ids_of_words(self.splitter.split(checked(texts, self.errors)))

    def _ids_of_words(self, words: Words) -> tf.RaggedTensor:
        """Returns the ids of words; those of one character, such as ideographs, from a table."""
        is_long = words.characters.row_lengths() > 1
        long, one = tf.where(is_long)[:, 0], tf.where(~is_long)[:, 0]
        ids_of_long = self._pieces_of_words(tf.gather(words.characters, long))[0]
        places = tf.gather(words.characters.row_splits, one)
        ids_of_one = self._character_ids(tf.gather(words.characters.values, places))
        # The words of one character between two long words, or at an end, are a run.
        runs = tf.range(tf.size(long, tf.int64) + 1)
        run_ends = tf.concat([long - runs[:-1], [tf.size(one, tf.int64)]], axis=0)
        ids_of_runs = tf.RaggedTensor.from_row_limits(ids_of_one, run_ends, validate=False)
        order = tf.reshape(tf.stack([runs, runs + tf.size(runs, tf.int64)], axis=1), [-1])[:-1]
        ids = tf.gather(tf.concat([ids_of_runs, ids_of_long], axis=0), order)
        more = tf.cumsum(tf.concat([[0], ids_of_long.row_lengths() - 1], axis=0))
        more = tf.gather(more, tf.searchsorted(long, words.row_splits))
        row_splits = words.row_splits + more
        return tf.RaggedTensor.from_row_splits(ids.values, row_splits, validate=False)

    def _mixed_ids(self, texts: tf.Tensor, is_fast: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of strings of which some are fast and some are not."""
        # Checked before they are cut, so that an error names the row and not the segment.
        others = checked(tf.where(is_fast, "", texts), self.errors)
        others = tf.strings.regex_replace(tf.boolean_mask(others, ~is_fast), _CUT, "")
        # A word, between spaces, with any other character; adjacent words are matched together.
        fast = self._fast_characters.any_length
        word = f"[^ ]*[^{fast}][^ ]*"
        is_dense = _is_dense(others)
        marked = tf.where(is_dense, "", others)
        marked = tf.strings.regex_replace(marked, f"{word}(?: {word})*", rf"{_CUT}\0{_CUT}")
        cut = tf.strings.split(tf.where(is_dense, others, marked), _CUT)

        is_fast_part = self._is_fast(cut.values) & ~_is_dense(cut.values)
        fast_texts = tf.boolean_mask(texts, is_fast)
        fast_parts = tf.boolean_mask(cut.values, is_fast_part)
        fast_ids = self._fast_ids(tf.concat([fast_texts, fast_parts], axis=0))
        exact_parts = tf.boolean_mask(cut.values, ~is_fast_part)
        exact_ids = self._ids_of_words(self.splitter.split(exact_parts))
        count = tf.size(fast_texts)
        part_ids = _merged(is_fast_part, fast_ids[count:], exact_ids)
        return _merged(is_fast, fast_ids[:count], joined_rows(part_ids, cut.row_splits))

    def _pieces_of_words(self, characters: tf.RaggedTensor) -> tuple:
        """Returns `word_pieces` of words, code points `[W, (K)]`, and which are too long."""
        words = tf.strings.unicode_encode(characters, "UTF-8")
        too_long = characters.row_lengths() > self.max_input_chars_per_word
        words = tf.where(too_long, "a" * (self.max_bytes_per_word + 1), words)
        return *tensorflow_text.word_pieces(words, self._word_model), too_long


def _merged(
    is_first: tf.Tensor, first: tf.RaggedTensor, second: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Returns the rows of `first` where `is_first` is True, and those of `second` elsewhere."""
    order = tf.concat([tf.where(is_first)[:, 0], tf.where(~is_first)[:, 0]], axis=0)
    return tf.gather(tf.concat([first, second], axis=0), tf.math.invert_permutation(order))


def _is_dense(texts: tf.Tensor) -> tf.Tensor:
    """Returns which texts consist mostly of characters of three bytes, such as ideographs."""
    return tf.strings.length(texts) > 2 * tf.strings.length(texts, "UTF8_CHAR")
