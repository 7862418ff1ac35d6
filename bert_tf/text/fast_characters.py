"""Finds the characters that tensorflow-text's `FastBertTokenizer` treats as the original does.

It treats others differently: it applies compatibility decompositions (NFKC), replaces control
characters by spaces instead of removing them, and follows the Unicode version of its ICU.
Therefore each character is tried once, and the result is compared with the table of
`unicode_tables`. Characters whose normalized form depends on their neighbors (the capital sigma,
and marks that NFD reorders) or has several code points are left out.

Reference: google-research/bert `tokenization.py`, class `BasicTokenizer`.
"""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text import tensorflow_text
from bert_tf.text import unicode_tables as unicode
from bert_tf.text.code_points import character_class
from bert_tf.text.vocabulary import CONTINUATION

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
def fast_characters(lowercase: bool, strip_accents: bool, split_on_cjk: bool) -> FastCharacters:
    """Tries the characters with the options of a `WordSplitter`."""
    table = unicode.character_table(lowercase, strip_accents, strip_accents, split_on_cjk)
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
