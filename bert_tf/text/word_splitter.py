"""Splits text into the words of google-research/bert's `BasicTokenizer`, with stock TensorFlow ops.

The strings of a batch are decoded into one flat vector of code points; every rule of
`tokenization.py` is then a vector operation on it, most of them one lookup in a table of
`unicode_tables`. So the time is linear in the text, whatever it holds, and the result depends on
one Unicode version only.

Glossary: `B` strings, `C` code points of all strings, `K` normalised code points that are left,
`W` words.

Reference: google-research/bert `tokenization.py`, class `BasicTokenizer`.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.text import unicode_tables
from bert_tf.text.unicode_tables import (
    CAPITAL_SIGMA,
    CASE_IGNORABLE,
    CASED,
    CJK,
    CONTROL,
    EXPANDS,
    FINAL_SIGMA,
    KEPT,
    MARK,
    PAGE_BITS,
    PAGE_SIZE,
    PAYLOAD_SHIFT,
    PUNCTUATION,
    REORDERS,
    SPACE,
)

# How the error in the graph begins.
MALFORMED_TEXT = "Expected every string to be valid UTF-8."


class Spans(NamedTuple):
    """Where in its own string each normalised code point stood, all int64 [K]; ends exclusive.

    The end includes the marks that normalisation removed behind the code point, so that a span
    never cuts an accent from its letter.
    """

    char_starts: tf.Tensor
    char_ends: tf.Tensor
    byte_starts: tf.Tensor
    byte_ends: tf.Tensor


class Words(NamedTuple):
    """The words of a batch of strings.

    Args:
        words: `[W]` string, normalised.
        row_splits: `[B+1]` int64, which words belong to which string.
        code_points: `[K]` int32, the code points of `words`.
        word_splits: `[W+1]` int64, which code points belong to which word.
        spans: the `Spans` of `code_points`, or None where they were not asked for.
    """

    words: tf.Tensor
    row_splits: tf.Tensor
    code_points: tf.Tensor
    word_splits: tf.Tensor
    spans: Spans | None


class WordSplitter:
    """Text to normalised words: clean, space CJK, split, lower-case, strip accents, punctuation.

    Args:
        lowercase: whether words are lower-cased, each as Python's `str.lower` does it.
        strip_accents: whether words are decomposed (NFD) and lose their marks (category Mn).
        split_on_cjk: whether each CJK ideograph is a word of its own.
        errors: "strict" refuses strings that are not valid UTF-8, "replace" reads each malformed
            part as U+FFFD, which tokenization then removes.

    Example:
        >>> WordSplitter(lowercase=True, strip_accents=True).ragged_words(tf.constant(["Él, no"]))
        <tf.RaggedTensor [[b'el', b',', b'no']]>

    Reference: google-research/bert `tokenization.py`, class `BasicTokenizer`.
    """

    def __init__(
        self,
        lowercase: bool = True,
        strip_accents: bool = True,
        split_on_cjk: bool = True,
        errors: str = "strict",
    ):
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.split_on_cjk = split_on_cjk
        self.errors = errors

    def ragged_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of `texts` (`[B]` string) as ragged strings `[B, (words)]`."""
        words = self.split(self.checked(texts))
        return tf.RaggedTensor.from_row_splits(words.words, words.row_splits, validate=False)

    def split(self, texts: tf.Tensor, with_spans: bool = False) -> Words:
        """Splits strings into words.

        Args:
            texts: `[B]` string, UTF-8.
            with_spans: whether to return where each code point of a word came from.

        Returns:
            The `Words`. Malformed bytes are read as U+FFFD; see `checked`.
        """
        table = unicode_tables.character_table(
            self.lowercase, self.strip_accents, self.strip_accents, self.split_on_cjk
        )
        if with_spans:
            ragged, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
            byte_starts = offsets.values  # [C]
        else:
            ragged, byte_starts = tf.strings.unicode_decode(texts, "UTF-8"), None
        code_points, row_splits = ragged.values, ragged.row_splits  # [C], [B+1]
        entries = _lookup(table, table.entries, code_points)  # [C]

        # Two code points are in the same word-to-be when no break lies between them: a break is
        # before and after each space and ideograph, and before each string.
        separators = _has(entries, SPACE | CJK)
        breaks = separators | tf.concat([[False], separators[:-1]], axis=0)[: tf.size(separators)]
        breaks |= _starts(row_splits, tf.size(code_points, out_type=tf.int64))
        runs = tf.cumsum(tf.cast(breaks, tf.int32))  # [C]

        if self.lowercase:
            code_points, entries = tf.cond(
                tf.reduce_any(code_points == CAPITAL_SIGMA),
                lambda: _place_final_sigmas(table, code_points, entries, runs),
                lambda: (code_points, entries),
            )
        normalised, sources, punctuation = self._normalise(table, code_points, entries, runs)

        # [K]: a word starts at a new run, at punctuation, and after it.
        new_runs = tf.gather(runs, sources)
        word_starts = tf.concat(
            [
                tf.ones_like(new_runs[:1], tf.bool),
                (new_runs[1:] != new_runs[:-1]) | punctuation[1:] | punctuation[:-1],
            ],
            axis=0,
        )
        starts = tf.where(word_starts)[:, 0]  # [W]
        word_splits = tf.concat([starts, [tf.size(normalised, out_type=tf.int64)]], axis=0)
        # `sources` is sorted but for marks that changed places inside one word.
        row_ends = tf.searchsorted(tf.gather(sources, starts), row_splits, out_type=tf.int64)
        words = tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(normalised, word_splits, validate=False), "UTF-8"
        )
        spans = None
        if with_spans:
            spans = _spans(texts, row_splits, byte_starts, entries, runs, sources)
        return Words(words, row_ends, normalised, word_splits, spans)

    def checked(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns `texts`; with `errors="strict"` fails where one is not UTF-8.

        Raises:
            tf.errors.InvalidArgumentError: names the rows that are not UTF-8.
        """
        if self.errors != "strict":
            return texts
        valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore") == texts
        check = tf.debugging.Assert(
            tf.reduce_all(valid),
            [
                f"{MALFORMED_TEXT} Received: malformed bytes in row(s)",
                tf.where(~valid)[:, 0],
                "Decode the text with its real encoding, or make the "
                "tokenizer with errors='replace'.",
            ],
            summarize=20,
        )
        with tf.control_dependencies([check] if check is not None else []):
            return tf.identity(texts)

    def _normalise(self, table, code_points, entries, runs):
        """Maps code points to what is left of them: values, sources and punctuation, all [K]."""

        def one_to_one():
            sources = tf.where(_has(entries, KEPT))[:, 0]
            kept = tf.gather(entries, sources)
            values = tf.gather(code_points, sources) + tf.bitwise.right_shift(kept, PAYLOAD_SHIFT)
            return values, sources, _has(kept, PUNCTUATION)

        def expanding():
            return _expand(table, code_points, entries)

        def reordering():
            return _decompose_in_order(
                self.lowercase, self.split_on_cjk, table, code_points, entries, runs
            )

        special = tf.reduce_any(_has(entries, EXPANDS | REORDERS))
        reorders = tf.reduce_any(_has(entries, REORDERS))
        if not self.strip_accents:
            return tf.cond(special, expanding, one_to_one)
        return tf.cond(special, lambda: tf.cond(reorders, reordering, expanding), one_to_one)


def _has(entries: tf.Tensor, flags: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(entries, flags) != 0


def _lookup(table, values, code_points: tf.Tensor) -> tf.Tensor:
    """Reads a two-level table at every code point."""
    pages = tf.gather(tf.constant(table.pages), tf.bitwise.right_shift(code_points, PAGE_BITS))
    return tf.gather(
        tf.constant(values), pages * PAGE_SIZE + tf.bitwise.bitwise_and(code_points, PAGE_SIZE - 1)
    )


def _starts(row_splits: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Marks the first element of every non-empty row: bool [size]."""
    ones = tf.ones_like(row_splits, tf.int32)
    return tf.scatter_nd(row_splits[:, tf.newaxis], ones, [size + 1])[:size] > 0


def _place_final_sigmas(table, code_points, entries, runs):
    """Replaces each capital sigma that ends a word by the final small sigma.

    Matches Python's `str.lower`, applied word by word: final is a sigma after a cased character
    and not before one, in both directions looking past case-ignorable characters.
    """
    present = ~_has(entries, SPACE | CASE_IGNORABLE | CONTROL)
    seen = tf.where(present)[:, 0]  # the code points that are looked at: [S]
    run = tf.gather(runs, seen)
    cased = _has(tf.gather(entries, seen), CASED)
    same_run = run[1:] == run[:-1]
    no = tf.zeros_like(run[:1], tf.bool)
    cased_before = tf.concat([no, cased[:-1] & same_run], axis=0)
    cased_after = tf.concat([cased[1:] & same_run, no], axis=0)
    final = cased_before & ~cased_after & (tf.gather(code_points, seen) == CAPITAL_SIGMA)
    positions = tf.boolean_mask(seen, final)[:, tf.newaxis]
    sigmas = tf.fill([tf.shape(positions)[0]], FINAL_SIGMA)
    return (
        tf.tensor_scatter_nd_update(code_points, positions, sigmas),
        tf.tensor_scatter_nd_update(entries, positions, _lookup(table, table.entries, sigmas)),
    )


def _expand(table, code_points, entries):
    """Like the one-to-one mapping, for texts where one code point may become several."""
    sources = tf.where(_has(entries, KEPT))[:, 0]
    kept = tf.gather(entries, sources)
    values = tf.gather(code_points, sources)
    payload = tf.bitwise.right_shift(kept, PAYLOAD_SHIFT)
    expands = _has(kept, EXPANDS)
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
    punctuation = _has(_lookup(table, table.entries, values), PUNCTUATION)
    return values, tf.repeat(sources, counts), punctuation


def _decompose_in_order(lowercase, split_on_cjk, table, code_points, entries, runs):
    """Like `_expand`, and sorts marks as NFD does, before those of category Mn are removed."""
    full = unicode_tables.character_table(lowercase, True, False, split_on_cjk)
    values, sources, punctuation = _expand(
        full, code_points, _lookup(full, full.entries, code_points)
    )
    classes = _lookup(full, full.combining_classes, values)
    run = tf.gather(runs, sources)
    barriers = tf.concat([[True], run[1:] != run[:-1]], axis=0) | (classes == 0)
    order = tf.cumsum(tf.cast(barriers, tf.int64)) * 256 + tf.cast(classes, tf.int64)
    order = tf.argsort(order, stable=True)
    values = tf.gather(values, order)
    left = tf.where(~_has(_lookup(full, full.entries, values), MARK))[:, 0]
    order = tf.gather(order, left)
    return tf.gather(values, left), tf.gather(sources, order), tf.gather(punctuation, order)


def _spans(texts, row_splits, byte_starts, entries, runs, sources) -> Spans:
    """Where the normalised code points came from, removed marks behind them included."""
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
    # A group is a code point and the removed marks behind it; controls and spaces are no part.
    own = _has(entries, KEPT | SPACE)
    marks = _has(entries, MARK) & ~own
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
