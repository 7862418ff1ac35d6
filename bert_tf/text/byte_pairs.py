"""Byte-level byte-pair encoding in the graph, as Hugging Face's `tokenizers` computes it.

Text is split by the pattern of GPT-2 or Llama 3. The bytes of all different words are merged
together.

Glossary: `B` strings, `U` different words, `S` symbols of all different words, `T` pieces of a
string.

References: Sennrich et al., arXiv 1508.07909; openai/gpt-2 `encoder.py`; huggingface/tokenizers
`byte_level.rs`.
"""

import functools

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import kept_values, repeated, row_ids
from bert_tf.errors import DataError, user_error
from bert_tf.text import code_points
from bert_tf.text.code_points import PlacedIds, StringTable, checked
from bert_tf.text.kept_whole import CUT
from bert_tf.text.merges import Merges
from bert_tf.text.subword_definition import Parts
from bert_tf.text.unicode_tables import hugging_face_data

_BLANK = 0x20


def byte_characters() -> list[str]:
    """Returns the character that stands for each byte in a vocabulary.

    Returns:
        256 characters: printable bytes are themselves, others the characters after U+00FF.

    Example:
        >>> characters = bert_tf.text.byte_characters()
        >>> "".join(characters[byte] for byte in "né a".encode())
        'nÃ©Ġa'

    Reference: openai/gpt-2 `encoder.py`, `bytes_to_unicode`.
    """
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = (byte for byte in range(256) if byte not in shown)
    characters = {byte: chr(byte) for byte in shown}
    characters |= {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return [characters[byte] for byte in range(256)]


class BytePairs(code_points.PieceModel):
    """Converts text to ids.

    Args:
        parts: The definition of the tokenizer.

    Raises:
        DataError: If a byte, or a part or the result of a merge, is not a piece.
    """

    def __init__(self, parts: Parts):
        self._parts, ids, merges = parts, parts.model["vocab"], parts.merges
        missing = next((char for char in byte_characters() if char not in ids), None)
        if missing is not None:
            expected = "contain the characters of all 256 bytes (`byte_characters`)"
            raise user_error("The vocabulary", expected, f"no piece {missing!r}.", DataError)
        self._byte_ids = np.array([ids[char] for char in byte_characters()], np.int32)
        self._merges = Merges(ids, merges)
        # Which bytes are next to each other in the result of a merge, where it joins its parts.
        byte_of = {char: byte for byte, char in enumerate(byte_characters())}
        self._whole = None  # the words that are pieces, whatever merges make of them
        if parts.model.get("ignore_merges"):
            pieces = (piece for piece in ids if piece and byte_of.keys() >= {*piece})
            self._whole = StringTable({bytes(map(byte_of.get, p)): ids[p] for p in pieces})
        other = next((m for m in merges if not {m[0][-1], m[1][0]} <= byte_of.keys()), None)
        if other is not None:
            expected = "be of characters that stand for bytes (`byte_characters`)"
            raise user_error("Every merge", expected, f"{other!r:.200}.", DataError)
        self._joins = np.zeros(256 * 256, bool)
        self._joins[[byte_of[a[-1]] * 256 + byte_of[b[0]] for a, b in merges]] = True

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        texts = checked(texts, self.errors)
        points, row_splits = code_points.decode(texts)
        if self._parts.add_prefix_space:
            texts = tf.strings.regex_replace(texts, r"\A([^ ])", r" \1")
            lacks = points.starts_row() & (points.values != _BLANK)
            points, _ = points.with_marks(lacks, _BLANK)
        words = _words(texts, self._parts.splits_like_llama)
        ids, begins, ends = code_points.pieces_of_words(words, self._merge)
        if self.marks_words:
            lengths = tf.cast(tf.strings.length(words.values), tf.int64)
            first_bytes = tf.cumsum(lengths, exclusive=True)
            begins_word = code_points.mask_of(first_bytes, tf.reduce_sum(lengths))
            ids = self.marked(ids, tf.gather(begins_word, begins))

        lengths = code_points.utf8_lengths(points.values)
        points = points.gather(repeated(lengths)[0])  # one for each byte
        first, ends = tf.gather(points.first, begins), tf.gather(points.last, ends - 1) + 1
        return code_points.placed(row_splits, ids, first, ends)

    def _merge(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the ids (int32) of the pieces of words `[U]`, their first bytes, row splits."""
        encoded = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)  # [S]
        encoded = tf.cast(encoded, tf.int32)
        size = tf.size(encoded, tf.int64)
        word_splits = tf.cumsum(tf.cast(tf.strings.length(words), tf.int64))
        word_splits = tf.concat([[0], word_splits], axis=0)
        # Parts of words between which nothing is ever merged are independent.
        joins = tf.gather(tf.constant(self._joins), tf.roll(encoded, 1, 0) * 256 + encoded)
        parts = tf.cumsum(tf.cast(~joins | code_points.mask_of(word_splits[:-1], size), tf.int64))
        symbols = tf.gather(tf.constant(self._byte_ids), encoded)
        places = tf.range(size)  # the first byte of each symbol
        done = tf.fill([size], -1)
        if self._whole is not None:
            whole = self._whole(words)  # [U]
            known = tf.where(whole >= 0)
            starts = tf.gather(word_splits, known)
            done = tf.tensor_scatter_nd_update(done, starts, tf.gather_nd(whole, known))
            left = tf.where(tf.gather(whole, row_ids(word_splits)) < 0)[:, 0]
            symbols, parts, places = (tf.gather(of, left) for of in (symbols, parts, places))
        done = self._merges(symbols, parts, places, done)
        begins = tf.where(done >= 0)[:, 0]
        return tf.gather(done, begins), begins, word_splits


@functools.cache
def _patterns(is_llama: bool) -> tuple[str, str]:
    r"""Returns two patterns for RE2: one for words, and one for the places where spaces are cut.

    GPT-2's:
    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    Llama 3's:
    (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
    \s*[\r\n]+|\s+(?!\S)|\s+

    The classes are those of the Unicode version of Hugging Face. RE2 has no `(?!\S)`, so all
    spaces but the last one in front of a word are cut off first; for Llama 3, unless that one ends
    a line.
    """
    properties = hugging_face_data().properties
    space = code_points.character_class(code_points.WHITE_SPACE)
    letter, number = (
        code_points.character_class(np.where(properties[k])[0]) for k in ("letter", "number")
    )
    endings, last, other = "'(?:[stmd]|re|ve|ll)", space, f" ?[^{space}{letter}{number}]+"
    words = f"{endings}| ?[{letter}]+| ?[{number}]+|{other}|[{space}]+"
    if is_llama:
        inside = (code for code in code_points.WHITE_SPACE if chr(code) not in "\r\n")
        last = code_points.character_class([*inside])
        words = f"(?i:{endings})|[^\r\n{letter}{number}]?[{letter}]+|[{number}]{{1,3}}"
        words += f"|{other}[\r\n]*|[{space}]*[\r\n]+|[{space}]+"
    return words, f"([{space}]+)([{last}][^{space}])"


def _words(texts: tf.Tensor, is_llama: bool) -> tf.RaggedTensor:
    """Splits `texts` (strings `[B]`) as GPT-2 or Llama 3 does, `[B, (words)]`."""
    word, spaces = _patterns(is_llama)
    cut = tf.strings.regex_replace(texts, spaces, rb"\1" + CUT + rb"\2")
    words = tf.strings.split(tf.strings.regex_replace(cut, word, rb"\0" + CUT), CUT)
    return kept_values(words, words.values != "")
