"""Splits text into the words of google-research/bert's `BasicTokenizer`, with stock TensorFlow ops.

The strings of a batch are decoded into one flat vector of code points. Every rule of
`tokenization.py` is then a vector operation on it, usually one lookup in a table of
`unicode_tables`. The time is therefore linear in the length of any text, and the result depends on
one fixed Unicode version only.

Glossary: `B` strings, `C` code points of all strings, `K` normalized code points that are kept,
`W` words of all strings.

Reference: google-research/bert `tokenization.py`, class `BasicTokenizer`.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from bert_tf.text import unicode_tables as unicode

# The beginning of the error that the graph raises.
MALFORMED_TEXT = "Every text must be valid UTF-8."


class Spans(NamedTuple):
    """The position of each normalized code point in its string, all int64 `[K]`.

    Ends are exclusive. They include the marks after the code point that normalization removed, so
    that a span never separates a letter from its accent.
    """

    char_starts: tf.Tensor
    char_ends: tf.Tensor
    byte_starts: tf.Tensor
    byte_ends: tf.Tensor


class Words(NamedTuple):
    """The words of a batch of strings.

    Attributes:
        words: The normalized words, strings `[W]`.
        row_splits: Which words belong to which string, int64 `[B+1]`.
        code_points: The code points of `words`, int32 `[K]`.
        word_splits: Which code points belong to which word, int64 `[W+1]`.
        spans: The `Spans` of `code_points`, or None if they were not requested.
    """

    words: tf.Tensor
    row_splits: tf.Tensor
    code_points: tf.Tensor
    word_splits: tf.Tensor
    spans: Spans | None


@dataclasses.dataclass(frozen=True)
class WordSplitter:
    """Splits text into normalized words.

    The steps are those of the original: clean the text, put spaces around CJK ideographs, split at
    white space, lower-case, strip accents, split at punctuation.

    Args:
        lowercase: Whether to lower-case words, each as Python's `str.lower` does.
        strip_accents: Whether to decompose words (NFD) and remove their marks (category Mn).
        split_on_cjk: Whether each CJK ideograph is a separate word.
        errors: "strict" refuses strings that are not valid UTF-8. "replace" reads each malformed
            part as U+FFFD, which is then removed.

    Example:
        >>> WordSplitter(lowercase=True, strip_accents=True).ragged_words(tf.constant(["Él, no"]))
        <tf.RaggedTensor [[b'el', b',', b'no']]>
    """

    lowercase: bool = True
    strip_accents: bool = True
    split_on_cjk: bool = True
    errors: str = "strict"

    def ragged_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of `texts` (strings `[B]`) as ragged strings `[B, (words)]`."""
        words = self.split(self.checked(texts))
        return tf.RaggedTensor.from_row_splits(words.words, words.row_splits, validate=False)

    def split(self, texts: tf.Tensor, with_spans: bool = False) -> Words:
        """Splits strings in UTF-8; `with_spans` adds the positions of the code points.

        Malformed bytes are read as U+FFFD; see `checked`.
        """
        table = unicode.character_table(
            self.lowercase, self.strip_accents, self.strip_accents, self.split_on_cjk
        )
        if with_spans:
            ragged, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
            byte_starts = offsets.values  # [C]
        else:
            ragged, byte_starts = tf.strings.unicode_decode(texts, "UTF-8"), None
        code_points, row_splits = ragged.values, ragged.row_splits  # [C], [B+1]
        entries = _lookup(table, table.entries, code_points)  # [C]

        # Code points without a break between them are one run, from which words are made: there is
        # a break before and after each space and ideograph, and before each string.
        separators = _has(entries, unicode.SPACE | unicode.CJK)
        breaks = separators | tf.concat([[False], separators[:-1]], axis=0)[: tf.size(separators)]
        breaks |= _starts(row_splits, tf.size(code_points, out_type=tf.int64))
        runs = tf.cumsum(tf.cast(breaks, tf.int32))  # [C]

        if self.lowercase:
            code_points, entries = tf.cond(
                tf.reduce_any(code_points == unicode.CAPITAL_SIGMA),
                lambda: _place_final_sigmas(table, code_points, entries, runs),
                lambda: (code_points, entries),
            )
        normalized, sources, punctuation = self._normalize(table, code_points, entries, runs)

        # [K]: a word starts at a new run, at punctuation and after punctuation.
        new_runs = tf.gather(runs, sources)
        word_starts = tf.concat(
            [
                tf.ones_like(new_runs[:1], tf.bool),
                (new_runs[1:] != new_runs[:-1]) | punctuation[1:] | punctuation[:-1],
            ],
            axis=0,
        )
        starts = tf.where(word_starts)[:, 0]  # [W]
        word_splits = tf.concat([starts, [tf.size(normalized, out_type=tf.int64)]], axis=0)
        # `sources` is sorted, except for marks that were reordered within a word.
        row_ends = tf.searchsorted(tf.gather(sources, starts), row_splits, out_type=tf.int64)
        words = tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(normalized, word_splits, validate=False), "UTF-8"
        )
        spans = None
        if with_spans:
            spans = _spans(texts, row_splits, byte_starts, entries, runs, sources)
        return Words(words, row_ends, normalized, word_splits, spans)

    def checked(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns `texts`. With `errors="strict"`, it first checks that all are UTF-8.

        Raises:
            tf.errors.InvalidArgumentError: If a text is not UTF-8. The message names the rows.
        """
        if self.errors != "strict":
            return texts
        valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore") == texts
        check = tf.debugging.Assert(
            tf.reduce_all(valid),
            [
                f"{MALFORMED_TEXT} Received: malformed bytes in row(s)",
                tf.where(~valid)[:, 0],
                "Decode the text with its real encoding, or create the "
                "tokenizer with errors='replace'.",
            ],
            summarize=20,
        )
        with tf.control_dependencies([check] if check is not None else []):
            return tf.identity(texts)

    def _normalize(self, table, code_points, entries, runs):
        """Returns the normalized code points, their sources and punctuation flags, all `[K]`."""

        def one_to_one():
            sources = tf.where(_has(entries, unicode.KEPT))[:, 0]
            kept = tf.gather(entries, sources)
            values = tf.gather(code_points, sources)
            values += tf.bitwise.right_shift(kept, unicode.PAYLOAD_SHIFT)
            return values, sources, _has(kept, unicode.PUNCTUATION)

        def expanding():
            return _expand(table, code_points, entries)

        def reordering():
            return _decompose_in_order(
                self.lowercase, self.split_on_cjk, table, code_points, entries, runs
            )

        special = tf.reduce_any(_has(entries, unicode.EXPANDS | unicode.REORDERS))
        reorders = tf.reduce_any(_has(entries, unicode.REORDERS))
        if not self.strip_accents:
            return tf.cond(special, expanding, one_to_one)
        return tf.cond(special, lambda: tf.cond(reorders, reordering, expanding), one_to_one)


def _has(entries: tf.Tensor, flags: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(entries, flags) != 0


def _lookup(table, values, code_points: tf.Tensor) -> tf.Tensor:
    """Looks up every code point in a two-level table."""
    numbers = tf.bitwise.right_shift(code_points, unicode.PAGE_BITS)
    places = tf.gather(tf.constant(table.pages), numbers) * unicode.PAGE_SIZE
    places += tf.bitwise.bitwise_and(code_points, unicode.PAGE_SIZE - 1)
    return tf.gather(tf.constant(values), places)


def _starts(row_splits: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns bool `[size]`: True at the first element of every non-empty row."""
    ones = tf.ones_like(row_splits, tf.int32)
    return tf.scatter_nd(row_splits[:, tf.newaxis], ones, [size + 1])[:size] > 0


def _place_final_sigmas(table, code_points, entries, runs):
    """Replaces each capital sigma at the end of a word by the final small sigma.

    Matches Python's `str.lower`, applied to each word: a sigma is final if a cased character is
    before it and none is after it. Case-ignorable characters are skipped in both directions.
    """
    present = ~_has(entries, unicode.SPACE | unicode.CASE_IGNORABLE | unicode.CONTROL)
    seen = tf.where(present)[:, 0]  # the code points that are not skipped
    run = tf.gather(runs, seen)
    cased = _has(tf.gather(entries, seen), unicode.CASED)
    same_run = run[1:] == run[:-1]
    no = tf.zeros_like(run[:1], tf.bool)
    cased_before = tf.concat([no, cased[:-1] & same_run], axis=0)
    cased_after = tf.concat([cased[1:] & same_run, no], axis=0)
    final = cased_before & ~cased_after & (tf.gather(code_points, seen) == unicode.CAPITAL_SIGMA)
    positions = tf.boolean_mask(seen, final)[:, tf.newaxis]
    sigmas = tf.fill([tf.shape(positions)[0]], unicode.FINAL_SIGMA)
    return (
        tf.tensor_scatter_nd_update(code_points, positions, sigmas),
        tf.tensor_scatter_nd_update(entries, positions, _lookup(table, table.entries, sigmas)),
    )


def _expand(table, code_points, entries):
    """Normalizes texts in which one code point can become several."""
    sources = tf.where(_has(entries, unicode.KEPT))[:, 0]
    kept = tf.gather(entries, sources)
    values = tf.gather(code_points, sources)
    payload = tf.bitwise.right_shift(kept, unicode.PAYLOAD_SHIFT)
    expands = _has(kept, unicode.EXPANDS)
    expansion = tf.where(expands, payload, 0)
    counts = tf.where(expands, tf.gather(tf.constant(table.expansion_lengths), expansion), 1)
    first = tf.repeat(tf.cumsum(counts, exclusive=True), counts)
    within = tf.range(tf.size(first)) - first
    expands = tf.repeat(expands, counts)
    values = tf.where(
        expands,
        tf.gather(
            tf.constant(table.expansions),
            tf.where(expands, tf.repeat(expansion, counts) + within, 0),
        ),
        tf.repeat(values + payload, counts),
    )
    punctuation = _has(_lookup(table, table.entries, values), unicode.PUNCTUATION)
    return values, tf.repeat(sources, counts), punctuation


def _decompose_in_order(lowercase, split_on_cjk, table, code_points, entries, runs):
    """Does `_expand` and sorts marks as NFD does, before marks of category Mn are removed."""
    full = unicode.character_table(lowercase, True, False, split_on_cjk)
    entries = _lookup(full, full.entries, code_points)
    values, sources, punctuation = _expand(full, code_points, entries)
    classes = _lookup(full, full.combining_classes, values)
    run = tf.gather(runs, sources)
    barriers = tf.concat([[True], run[1:] != run[:-1]], axis=0) | (classes == 0)
    order = tf.cumsum(tf.cast(barriers, tf.int64)) * 256 + tf.cast(classes, tf.int64)
    order = tf.argsort(order, stable=True)
    values = tf.gather(values, order)
    left = tf.where(~_has(_lookup(full, full.entries, values), unicode.MARK))[:, 0]
    order = tf.gather(order, left)
    return tf.gather(values, left), tf.gather(sources, order), tf.gather(punctuation, order)


def _spans(texts, row_splits, byte_starts, entries, runs, sources) -> Spans:
    """Returns the `Spans` of the normalized code points."""
    row_of = tf.repeat(
        tf.range(tf.size(texts, out_type=tf.int64)), row_splits[1:] - row_splits[:-1]
    )  # [C]
    positions = tf.range(tf.size(row_of, out_type=tf.int64))
    last_of_row = tf.gather(row_splits[1:], row_of) - 1
    byte_ends = tf.where(
        positions == last_of_row,
        tf.gather(tf.cast(tf.strings.length(texts), tf.int64), row_of),
        tf.concat([byte_starts[1:], byte_starts[:1]], axis=0),
    )
    # A group is a code point and the removed marks after it, without controls and spaces.
    own = _has(entries, unicode.KEPT | unicode.SPACE)
    marks = _has(entries, unicode.MARK) & ~own
    new_run = tf.concat([[True], runs[1:] != runs[:-1]], axis=0)[: tf.size(runs)]
    groups = tf.cumsum(tf.cast(own | new_run, tf.int32)) - 1
    ends = tf.math.segment_max(tf.where(own | marks, positions, -1), groups)
    ends = tf.gather(ends, tf.gather(groups, sources))  # [K]
    row_starts = tf.gather(row_splits, tf.gather(row_of, sources))
    return Spans(
        char_starts=sources - row_starts,
        char_ends=ends + 1 - row_starts,
        byte_starts=tf.gather(byte_starts, sources),
        byte_ends=tf.gather(byte_ends, ends),
    )
