"""Splits text into the words of google-research/bert's `BasicTokenizer`, with stock TensorFlow ops.

Every rule of `tokenization.py` is a vector operation on the code points of a batch, usually one
lookup in a table of `unicode_tables`, in linear time and with one fixed Unicode version. Hugging
Face's rules differ only in this table.

Glossary: `B` strings, `C` code points of all strings, `K` normalized code points that are kept,
`W` words of all strings.

Reference: google-research/bert `tokenization.py`, class `BasicTokenizer`.
"""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.errors import require
from bert_tf.text import unicode_tables as unicode
from bert_tf.text.chinese_words import ChineseWords
from bert_tf.text.code_points import checked, mask_of, starts


class Words(NamedTuple):
    """The words of a batch of strings.

    The span of a normalized code point includes the marks after it that normalization removed.
    """

    characters: tf.RaggedTensor  # of each word, normalized, int32 [W, (K)]
    row_splits: tf.Tensor  # which words belong to which string, int64 [B+1]
    starts: tf.Tensor  # where each of `characters` begins in its string, int64 [K]
    ends: tf.Tensor  # and the code point after its last, int64 [K]


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
        character_rules: See `BertTokenizer`.
        words: What finds the words between white space, instead of at ideographs and punctuation.

    Example:
        >>> WordSplitter(lowercase=True, strip_accents=True).ragged_words(tf.constant(["Él, no"]))
        <tf.RaggedTensor [[b'el', b',', b'no']]>
    """

    lowercase: bool = True
    strip_accents: bool = True
    split_on_cjk: bool = True
    errors: str = "strict"
    character_rules: str = unicode.GOOGLE
    words: ChineseWords | None = None

    def __post_init__(self):
        rule = "must be True with a `segmenter`"
        require(self.words is None or self.split_on_cjk, rule, split_on_cjk=self.split_on_cjk)

    def table(self, decompose: bool, strip_marks: bool) -> unicode.CharacterTable:
        """Returns the table of characters for these steps of the normalization."""
        others = self.split_on_cjk and self.words is None, self.character_rules
        return unicode.character_table(self.lowercase, decompose, strip_marks, *others)

    def ragged_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of `texts` (strings `[B]`) as ragged strings `[B, (words)]`."""
        words = self.split(checked(texts, self.errors))
        strings = tf.strings.unicode_encode(words.characters, "UTF-8")
        return tf.RaggedTensor.from_row_splits(strings, words.row_splits, validate=False)

    def split(self, texts: tf.Tensor) -> Words:
        """Splits strings, malformed bytes as U+FFFD."""
        return _traced_split(self)(texts)

    def _split(self, texts: tf.Tensor) -> Words:
        table = self.table(self.strip_accents, self.strip_accents)
        decoded = tf.strings.unicode_decode(texts, "UTF-8")
        code_points, row_splits = decoded.values, decoded.row_splits  # [C], [B+1]
        rows = row_ids(decoded.row_splits)  # [C]
        entries = table.entries(code_points)  # [C]

        # Code points without a break between them are one run. There is a break before and after
        # each space and ideograph, and before each string.
        separators = _has(entries, unicode.SPACE | unicode.CJK)
        breaks = separators | tf.roll(separators, 1, 0)
        breaks |= mask_of(row_splits, tf.size(code_points, tf.int64) + 1)[:-1]
        runs = tf.cumsum(tf.cast(breaks, tf.int32))  # [C]

        if self.lowercase:
            code_points, entries = tf.cond(
                tf.reduce_any(code_points == unicode.CAPITAL_SIGMA),
                lambda: _place_final_sigmas(table, code_points, entries, runs),
                lambda: (code_points, entries),
            )
        normalized, sources, punctuation = self._normalize(table, code_points, entries, runs)

        # [K]: a word starts at a new run, at punctuation and after punctuation.
        is_first = starts(tf.gather(runs, sources))
        if self.words is None:
            before = tf.concat([punctuation[:1], punctuation[:-1]], axis=0)
            is_first |= punctuation | before
        else:
            is_first = self.words.starts(normalized, is_first)
        first = tf.where(is_first)[:, 0]  # [W]
        word_splits = tf.concat([first, [tf.size(normalized, out_type=tf.int64)]], axis=0)
        # `sources` is sorted, except for marks that were reordered within a word.
        row_ends = tf.searchsorted(tf.gather(sources, first), row_splits, out_type=tf.int64)
        words = tf.RaggedTensor.from_row_splits(normalized, word_splits, validate=False)
        row_starts = tf.gather(row_splits, tf.gather(rows, sources))
        last = tf.gather(_last_of_groups(entries, runs), sources)
        spans = sources - row_starts, last + 1 - row_starts
        return Words(words, row_ends, *spans)

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
            return _decompose_in_order(self.table(True, False), code_points, runs)

        special = tf.reduce_any(_has(entries, unicode.EXPANDS | unicode.REORDERS))
        reorders = tf.reduce_any(_has(entries, unicode.REORDERS))
        if not self.strip_accents:
            return tf.cond(special, expanding, one_to_one)
        return tf.cond(special, lambda: tf.cond(reorders, reordering, expanding), one_to_one)


@functools.cache
def _traced_split(splitter: WordSplitter):
    """Returns `splitter._split`, traced once for all vocabularies."""
    signature = [tf.TensorSpec([None], tf.string)]
    return tf.function(splitter._split, input_signature=signature, autograph=False)


def _has(entries: tf.Tensor, flags: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(entries, flags) != 0


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
        tf.tensor_scatter_nd_update(entries, positions, table.entries(sigmas)),
    )


def _expand(table, code_points, entries):
    """Normalizes texts in which one code point can become several."""
    sources = tf.where(_has(entries, unicode.KEPT))[:, 0]
    kept = tf.gather(entries, sources)
    payload = tf.bitwise.right_shift(kept, unicode.PAYLOAD_SHIFT)
    rules = tf.where(_has(kept, unicode.EXPANDS), payload, 0)
    values, again = table.expansions(tf.gather(code_points, sources) + payload, rules)
    punctuation = _has(table.entries(values), unicode.PUNCTUATION)
    return values, tf.gather(sources, again), punctuation


def _decompose_in_order(table, code_points, runs):
    """Does `_expand` and sorts marks as NFD does, before marks of category Mn are removed."""
    values, sources, punctuation = _expand(table, code_points, table.entries(code_points))
    classes = table.combining_classes(values)
    barriers = starts(tf.gather(runs, sources)) | (classes == 0)
    order = tf.cumsum(tf.cast(barriers, tf.int64)) * 256 + tf.cast(classes, tf.int64)
    order = tf.argsort(order, stable=True)
    values = tf.gather(values, order)
    left = tf.where(~_has(table.entries(values), unicode.MARK))[:, 0]
    order = tf.gather(order, left)
    return tf.gather(values, left), tf.gather(sources, order), tf.gather(punctuation, order)


def _last_of_groups(entries, runs):
    """Returns, for each code point, the last one of its group.

    A group is a code point that is kept and the removed marks after it. Controls and spaces between
    them do not end a group, and are not its last.
    """
    own = _has(entries, unicode.KEPT | unicode.SPACE)
    marks = _has(entries, unicode.MARK) & ~own
    groups = tf.cumsum(tf.cast(own | starts(runs), tf.int32)) - 1
    positions = tf.range(tf.size(runs, tf.int64))
    last = tf.math.segment_max(tf.where(own | marks, positions, -1), groups)
    return tf.gather(last, groups)
