"""Byte-level byte-pair encoding in the graph, as Hugging Face's `tokenizers` computes it.

Text is split as GPT-2's pattern does: its alternatives depend on neighboring characters only, so
each is a vector operation. The bytes of all different words are merged together, in each round all
pairs of the lowest rank in their word.

Glossary: `B` strings, `C` code points of all strings, `W` words, `U` different words, `S` symbols
of all different words, `T` pieces of a string, `V` vocabulary, `M` merges.

References: Sennrich et al., arXiv 1508.07909; openai/gpt-2 `encoder.py`; huggingface/tokenizers
`byte_level.rs` and `bpe/word.rs`.
"""

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError
from bert_tf.text.code_points import (
    WHITE_SPACE,
    CodePointTable,
    decode,
    hugging_face_data,
    starts,
    utf8_lengths,
)
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import Pieces

# Classes of characters in GPT-2's pattern.
_OTHER, _LETTER, _NUMBER, _SPACE = range(4)
_NO_RANK = np.int32(2**31 - 1)
_ID_BITS = 31


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


class BytePairs:
    """Converts text to ids.

    Args:
        ids: The id of each piece.
        merges: Pairs of pieces, in the order in which they are merged.
        add_prefix_space: Whether a space is put before a text that does not begin with one.
        trim_offsets: Whether spans exclude the spaces of a piece.

    Raises:
        DataError: If a byte, or a part or the result of a merge, is not a piece.
    """

    def __init__(
        self,
        ids: dict[str, int],
        merges: list[tuple[str, str]],
        add_prefix_space: bool,
        trim_offsets: bool,
    ):
        self.splitter = WordSplitter(errors="replace")
        self._add_prefix_space = add_prefix_space
        try:
            self._byte_ids = np.array([ids[char] for char in byte_characters()], np.int32)
            # Of a repeated merge, the last one counts.
            ranks = {(ids[a], ids[b]): (rank, ids[a + b]) for rank, (a, b) in enumerate(merges)}
        except KeyError as error:
            raise DataError(
                "The vocabulary must contain the characters of all 256 bytes, and the parts and "
                f"results of all merges. Received: no piece {error.args[0]!r:.200}."
            ) from None
        pairs = np.array(list(ranks), np.int64).reshape(-1, 2)
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        self._keys = np.append((pairs[:, 0] << _ID_BITS | pairs[:, 1])[order], 2**62)  # [M+1]
        values = np.array(list(ranks.values()), np.int32).reshape(-1, 2)
        self._ranks = np.append(values[order, 0], _NO_RANK)  # [M+1]
        self._merged = np.append(values[order, 1], np.int32(0))  # [M+1]
        # Which bytes are next to each other in the result of a merge, where it joins its parts.
        byte_of = {char: byte for byte, char in enumerate(byte_characters())}
        self._joins = np.zeros(256 * 256, bool)
        self._joins[[byte_of[a[-1]] * 256 + byte_of[b[0]] for a, b in merges]] = True
        # Usually no merge has an earlier rank than those that make its parts. If one has, pairs
        # that appear later can come first, so only one pair can be merged at a time.
        made_at = dict.fromkeys(ids.values(), -1)
        for rank, piece in values:
            made_at[piece] = max(made_at[piece], rank)
        self._in_rounds = all(
            rank > max(made_at[a], made_at[b]) for (a, b), (rank, _) in ranks.items()
        )
        space = byte_characters()[0x20]
        trimmed = np.zeros([2, max(ids.values()) + 1], np.int64)  # leading, trailing spaces
        for piece, index in ids.items() if trim_offsets else ():
            trimmed[0, index] = len(piece) - len(piece.lstrip(space))
            trimmed[1, index] = len(piece) - len(piece.rstrip(space))
        self._trimmed = trimmed
        properties, _ = hugging_face_data()
        kinds = _LETTER * properties["letter"] + _NUMBER * properties["number"]
        kinds[list(WHITE_SPACE)] = _SPACE
        self._kinds = CodePointTable(kinds)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        return self.pieces(texts).ids

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces` of `texts` (strings `[B]`)."""
        texts = self.splitter.checked(texts)
        added = tf.zeros_like(texts, tf.int64)  # code points, all of them spaces
        if self._add_prefix_space:
            lacks = tf.strings.regex_full_match(texts, r"(?s)[^ ].*")
            texts, added = tf.where(lacks, " " + texts, texts), tf.cast(lacks, tf.int64)
        decoded = decode(texts)
        points = decoded.points
        word_starts = tf.where(self._word_starts(points))[:, 0]  # [W]
        word_splits = tf.concat([word_starts, [tf.size(points.values, tf.int64)]], axis=0)
        words = tf.RaggedTensor.from_row_splits(points.values, word_splits, validate=False)
        different, index = tf.unique(tf.strings.unicode_encode(words, "UTF-8"))  # [U], [W]
        ids, sizes = self._merge(different)  # ragged [U, (pieces)]
        ids, sizes = tf.gather(ids, index), tf.gather(sizes, index)  # ragged [W, (pieces)]

        # Words and pieces follow each other without gaps, so sizes add up to positions.
        point_ends = tf.cumsum(utf8_lengths(points.values))
        ends = tf.cumsum(sizes.values)
        first = tf.searchsorted(point_ends, ends - sizes.values, side="right", out_type=tf.int64)
        last = tf.searchsorted(point_ends, ends, side="left", out_type=tf.int64)
        fields = list(decoded.spans(first, last))
        rows = tf.gather(points.rows, first)
        own = tf.gather(added, rows)
        fields = [tf.maximum(field - own, 0) for field in fields]
        leading, trailing = (tf.gather(tf.constant(side), ids.values) for side in self._trimmed)
        if self._add_prefix_space:  # tokenizers, byte_level.rs, `process_offsets`
            leading = tf.where((fields[2] > 0) | (leading != 1), leading, 0)
        for start, end in ((0, 1), (2, 3)):  # a space is one byte and one code point
            fields[start] = tf.minimum(fields[start] + leading, fields[end])
            fields[end] = tf.maximum(fields[end] - trailing, fields[start])
        row_splits = tf.searchsorted(
            rows, tf.range(tf.size(texts, tf.int64) + 1), out_type=tf.int64
        )
        fields = (
            tf.RaggedTensor.from_row_splits(field, row_splits, validate=False)
            for field in (ids.values, *fields)
        )
        return Pieces(*fields)

    def _word_starts(self, points) -> tf.Tensor:
        """Returns where GPT-2's pattern begins a new match, bool `[C]`.

        's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+
        """
        kinds, values, row_starts = self._kinds(points.values), points.values, points.starts_row()
        size = tf.size(values)

        def shifted(tensor, by):  # what is `by` places later, of the same string; else 0
            moved = tf.roll(tensor, -by, 0)
            same = tf.roll(points.rows, -by, 0) == points.rows
            same &= tf.roll(points.first, -by, 0) == points.first + by
            return tf.where(same, moved, 0)[:size]

        before = tf.where(row_starts, _SPACE, tf.roll(kinds, 1, 0))
        after_blank = ~row_starts & (tf.roll(values, 1, 0) == 0x20)
        is_space = kinds == _SPACE
        row_ends = tf.roll(row_starts, -1, 0)
        ends_spaces = is_space & ~row_ends & (tf.roll(kinds, -1, 0) != _SPACE)
        changes = (before != kinds) | ends_spaces
        result = row_starts | (changes & ~(~is_space & after_blank))
        # A contraction, at an apostrophe that begins a match.
        first, second = shifted(values, 1), shifted(values, 2)
        one = tf.reduce_any([first == ord(char) for char in "stmd"], axis=0)
        two = tf.reduce_any(
            [(first == ord(a)) & (second == ord(b)) for a, b in ("re", "ve", "ll")], axis=0
        )
        quote = result & (values == 0x27)
        lengths = tf.where(quote & one, 1, tf.where(quote & two, 2, 0))
        places = tf.where(lengths > 0)
        lengths = tf.gather_nd(tf.cast(lengths, tf.int64), places)[:, tf.newaxis]
        after = places + lengths + 1
        after = tf.boolean_mask(after, after[:, 0] < tf.size(values, tf.int64))
        result = tf.tensor_scatter_nd_update(result, after, tf.ones_like(after[:, 0], tf.bool))
        return tf.tensor_scatter_nd_update(result, places + 1, tf.zeros_like(places[:, 0], tf.bool))

    def _merge(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids (int32) and bytes (int64) of pieces of words, ragged `[U, (pieces)]`."""
        encoded = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)  # [S]
        encoded = tf.cast(encoded, tf.int32)
        sizes = tf.cast(tf.strings.length(words), tf.int64)
        word_splits = tf.concat([[0], tf.cumsum(sizes)], axis=0)
        # Parts of words between which nothing is ever merged are independent.
        joins = tf.gather(tf.constant(self._joins), tf.roll(encoded, 1, 0) * 256 + encoded)
        joins = tf.tensor_scatter_nd_update(
            tf.concat([joins, [False]], axis=0),
            word_splits[:, tf.newaxis],
            tf.zeros_like(word_splits, tf.bool),
        )[:-1]
        parts = tf.cumsum(tf.cast(~joins, tf.int64)) - 1
        symbols = tf.gather(tf.constant(self._byte_ids), encoded)
        places = tf.range(tf.size(symbols, tf.int64))  # the first byte of each symbol

        def merge(symbols, parts, places, done):
            chosen, index, is_open = self._chosen(symbols, parts)
            merged = tf.gather(tf.constant(self._merged), index)
            symbols = tf.tensor_scatter_nd_update(symbols, chosen[:, tf.newaxis], merged)
            second = tf.scatter_nd(
                chosen[:, tf.newaxis] + 1, tf.ones_like(chosen), tf.shape(symbols, tf.int64)
            )
            # What has no more merges leaves the loop.
            ready = tf.where(~is_open)[:, 0]
            done = tf.tensor_scatter_nd_update(
                done, tf.gather(places, ready)[:, tf.newaxis], tf.gather(symbols, ready)
            )
            left = tf.where(is_open & (second == 0))[:, 0]
            return *(tf.gather(part, left) for part in (symbols, parts, places)), done

        vector = tf.TensorShape([None])
        _, _, _, done = tf.while_loop(
            lambda symbols, *_: tf.size(symbols) > 0,
            merge,
            (symbols, parts, places, tf.fill([tf.size(symbols)], -1)),
            shape_invariants=(vector,) * 4,
        )
        begins = tf.where(done >= 0)[:, 0]
        ids = tf.gather(done, begins)
        ends = tf.concat([begins[1:], word_splits[-1:]], axis=0)[: tf.size(begins)]
        row_splits = tf.searchsorted(begins, word_splits, out_type=tf.int64)
        return (
            tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False),
            tf.RaggedTensor.from_row_splits(ends - begins, row_splits, validate=False),
        )

    def _chosen(self, symbols, parts) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns which pairs to merge next, by which merges, and which symbols have merges."""
        symbols = tf.cast(symbols, tf.int64)
        parts = tf.cumsum(tf.cast(starts(parts), tf.int32)) - 1  # without gaps
        count = tf.reduce_max(tf.concat([parts, [-1]], axis=0)) + 1
        keys = symbols[:-1] * 2**_ID_BITS + symbols[1:]
        index = tf.searchsorted(tf.constant(self._keys), keys)
        known = tf.gather(tf.constant(self._keys), index) == keys
        known &= parts[1:] == parts[:-1]
        ranks = tf.where(known, tf.gather(tf.constant(self._ranks), index), _NO_RANK)
        lowest = tf.math.unsorted_segment_min(ranks, parts[:-1], count)
        is_open = tf.gather(lowest < _NO_RANK, parts)
        places = tf.where(known & (ranks == tf.gather(lowest, parts[:-1])))[:, 0]
        if self._in_rounds:
            # Of pairs that overlap (of one symbol repeated), every other one.
            order = tf.range(tf.size(places, tf.int64))
            new = starts(places - order)
            runs = tf.gather(tf.where(new)[:, 0], tf.cumsum(tf.cast(new, tf.int32)) - 1)
            places = tf.boolean_mask(places, (order - runs) % 2 == 0)
        else:
            places = tf.boolean_mask(places, starts(tf.gather(parts, places)))
        return places, tf.gather(index, places), is_open
