"""Splits text into the words of google-research/bert's `BasicTokenizer`, with stock TensorFlow ops.

Every rule of `tokenization.py` is a vector operation on the code points of a batch, usually one
lookup in a table of `unicode_tables`, in linear time and with one fixed Unicode version.

Glossary: `B` strings, `C` code points of all strings, `K` normalized code points that are kept,
`W` words of all strings.

Reference: google-research/bert `tokenization.py`, class `BasicTokenizer`.
"""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from bert_tf.text import unicode_tables as unicode

# The beginning of the error that the graph raises.
MALFORMED_TEXT = "Every text must be valid UTF-8."


class Spans(NamedTuple):
    """The position of each normalized code point in its string, all int64 `[K]`.

    Ends are exclusive. They include the marks after the code point that normalization removed.
    """

    byte_starts: tf.Tensor
    byte_ends: tf.Tensor
    char_starts: tf.Tensor
    char_ends: tf.Tensor


class Words(NamedTuple):
    """The words of a batch of strings."""

    words: tf.Tensor  # normalized, strings [W]
    row_splits: tf.Tensor  # which words belong to which string, int64 [B+1]
    code_points: tf.Tensor  # of `words`, int32 [K]
    word_splits: tf.Tensor  # which code points belong to which word, int64 [W+1]
    spans: Spans | None  # of `code_points`, if they were requested


@dataclasses.dataclass(frozen=True)
class WordSplitter:
    """Splits text into normalized words, as the original does.

    It cleans text, splits at white space and CJK ideographs, normalizes and splits at punctuation.

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
        """Splits strings, malformed bytes as U+FFFD; `with_spans` adds the positions."""
        return _traced_split(self, with_spans)(texts)

    def _split(self, texts: tf.Tensor, with_spans: bool) -> Words:
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

        # Code points without a break between them are one run. There is a break before and after
        # each space and ideograph, and before each string.
        separators = _has(entries, unicode.SPACE | unicode.CJK)
        breaks = separators | tf.concat([[False], separators[:-1]], axis=0)[: tf.size(separators)]
        row_starts = tf.scatter_nd(
            row_splits[:, tf.newaxis], tf.ones_like(row_splits), [tf.size(breaks, tf.int64) + 1]
        )
        breaks |= row_starts[:-1] > 0
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
        later_starts = (new_runs[1:] != new_runs[:-1]) | punctuation[1:] | punctuation[:-1]
        word_starts = tf.concat([tf.ones_like(new_runs[:1], tf.bool), later_starts], axis=0)
        starts = tf.where(word_starts)[:, 0]  # [W]
        word_splits = tf.concat([starts, [tf.size(normalized, out_type=tf.int64)]], axis=0)
        # `sources` is sorted, except for marks that were reordered within a word.
        row_ends = tf.searchsorted(tf.gather(sources, starts), row_splits, out_type=tf.int64)
        ragged = tf.RaggedTensor.from_row_splits(normalized, word_splits, validate=False)
        words = tf.strings.unicode_encode(ragged, "UTF-8")
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
                "Decode the text with its real encoding, or create the tokenizer with "
                "errors='replace'.",
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
            full = unicode.character_table(self.lowercase, True, False, self.split_on_cjk)
            return _decompose_in_order(full, code_points, runs)

        special = tf.reduce_any(_has(entries, unicode.EXPANDS | unicode.REORDERS))
        reorders = tf.reduce_any(_has(entries, unicode.REORDERS))
        if not self.strip_accents:
            return tf.cond(special, expanding, one_to_one)
        return tf.cond(special, lambda: tf.cond(reorders, reordering, expanding), one_to_one)


@functools.cache
def _traced_split(splitter: WordSplitter, with_spans: bool):
    """Returns `splitter._split`, traced once for all vocabularies."""
    split = functools.partial(splitter._split, with_spans=with_spans)
    return tf.function(split, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)


def _has(entries: tf.Tensor, flags: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(entries, flags) != 0


def _lookup(table, values, code_points: tf.Tensor) -> tf.Tensor:
    """Looks up every code point in a two-level table."""
    numbers = tf.bitwise.right_shift(code_points, unicode.PAGE_BITS)
    places = tf.gather(tf.constant(table.pages), numbers) * unicode.PAGE_SIZE
    places += tf.bitwise.bitwise_and(code_points, unicode.PAGE_SIZE - 1)
    return tf.gather(tf.constant(values), places)


def _place_final_sigmas(table, code_points, entries, runs):
    """Replaces each capital sigma at the end of a word by the final small sigma.

    Matches `str.lower` of each word: a sigma is final if a cased character is before it and none is
    after it. Case-ignorable characters are skipped in both directions.
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
    places = tf.where(expands, tf.repeat(expansion, counts) + within, 0)
    expanded = tf.gather(tf.constant(table.expansions), places)
    values = tf.where(expands, expanded, tf.repeat(values + payload, counts))
    punctuation = _has(_lookup(table, table.entries, values), unicode.PUNCTUATION)
    return values, tf.repeat(sources, counts), punctuation


def _decompose_in_order(table, code_points, runs):
    """Does `_expand` and sorts marks as NFD does, before marks of category Mn are removed."""
    entries = _lookup(table, table.entries, code_points)
    values, sources, punctuation = _expand(table, code_points, entries)
    classes = _lookup(table, table.combining_classes, values)
    run = tf.gather(runs, sources)
    barriers = tf.concat([[True], run[1:] != run[:-1]], axis=0) | (classes == 0)
    order = tf.cumsum(tf.cast(barriers, tf.int64)) * 256 + tf.cast(classes, tf.int64)
    order = tf.argsort(order, stable=True)
    values = tf.gather(values, order)
    left = tf.where(~_has(_lookup(table, table.entries, values), unicode.MARK))[:, 0]
    order = tf.gather(order, left)
    return tf.gather(values, left), tf.gather(sources, order), tf.gather(punctuation, order)


def _spans(texts, row_splits, byte_starts, entries, runs, sources) -> Spans:
    """Returns the `Spans` of the normalized code points."""
    rows = tf.range(tf.size(texts, tf.int64))
    row_of = tf.repeat(rows, row_splits[1:] - row_splits[:-1])  # [C]
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
        byte_starts=tf.gather(byte_starts, sources),
        byte_ends=tf.gather(byte_ends, ends),
        char_starts=sources - row_starts,
        char_ends=ends + 1 - row_starts,
    )
