"""The normalizers of Hugging Face's `tokenizers` that Unigram models use, in the graph.

Each step turns code points into code points and remembers which original ones they were made of.

Glossary: `C` code points of all strings, `G` graphemes.

Reference: huggingface/tokenizers `src/normalizers`.
"""

import base64
import binascii
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_tf.errors import ConfigError, DataError
from bert_tf.text.code_points import (
    CODE_POINT_BITS,
    WHITE_SPACE,
    CodePoints,
    CodePointTable,
    Decoded,
    decode,
    hugging_face_data,
    starts,
    utf8_lengths,
)
from bert_tf.text.sentencepiece_model import MOST_RULE_BYTES, charsmap_rules
from bert_tf.text.subword_definition import flat
from bert_tf.text.unicode_tables import NUM_CODE_POINTS, unicode_data
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import Pieces

Step = Callable[[CodePoints], CodePoints]
_EXTEND, _PREPEND, _CONTROL = 1, 2, 3  # Grapheme_Cluster_Break, as far as it matters here


def steps(normalizer: dict | None) -> list[Step]:
    """Returns the steps of the `normalizer` in a `tokenizer.json`.

    Raises:
        ConfigError: If a step is not supported. The message says which are.
        DataError: If a `precompiled_charsmap` is malformed.
    """
    found: list[Step] = []
    pending = flat(normalizer, "normalizers")[::-1]
    while pending:
        step = pending.pop()
        kind, pattern, content = step.get("type"), step.get("pattern"), step.get("content")
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        if kind == "Precompiled":
            try:
                charsmap = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
            except (binascii.Error, TypeError, ValueError):
                raise DataError("`precompiled_charsmap` must be base64.") from None
            if charsmap:
                found.append(_Mapping(charsmap_rules(charsmap, "The normalizer"), True))
        elif kind == "Lowercase":
            found.append(_known_mapping("lower"))
        elif kind == "NFKD" and pending and pending[-1].get("type") == "StripAccents":
            pending.pop()  # without marks, their order does not matter
            found.append(_known_mapping("unaccented"))
        elif kind == "Strip":
            found.append(_Strip(step.get("strip_left", False), step.get("strip_right", False)))
        elif kind == "Replace" and literal and len(literal) == 1 and isinstance(content, str):
            found.append(_Mapping({literal: content}))
        elif kind == "Replace" and literal and literal == 2 * literal[0] and _is_char(content):
            found.append(_Runs(literal[0], content, pairs=True))
        elif kind == "Replace" and pattern == {"Regex": " {2,}"} and _is_char(content):
            found.append(_Runs(" ", content, pairs=False))
        else:
            raise ConfigError(
                "Every normalizer of the tokenizer must be Precompiled, Lowercase, NFKD before "
                "StripAccents, Strip, or Replace of one character, of a character twice or of ' "
                f"{{2,}}'. Received: {step!r:.200}."
            )
    return found


def _is_char(text) -> bool:
    return isinstance(text, str) and len(text) == 1


class Normalized:
    """Normalizes text before a model converts it to ids. Spans are those of the original text."""

    def __init__(self, steps: list[Step], model=None):
        self._steps, self._model = steps, model
        self.splitter = WordSplitter(errors="replace")

    def __call__(self, text: str) -> str:
        """Returns a normalized text, outside of any graph."""
        with tf.init_scope():
            return self._normalize(tf.constant([text]))[2].numpy()[0].decode()

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        return self.pieces(texts).ids

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces` of `texts` (strings `[B]`)."""
        decoded, points, normalized = self._normalize(self.splitter.checked(texts))
        ids, _, _, first, end = self._model.pieces(normalized)
        size = tf.size(texts, tf.int64)
        row_starts = tf.searchsorted(points.rows, tf.range(size), out_type=tf.int64)
        row_starts = tf.gather(row_starts, ids.value_rowids())
        first = tf.gather(points.first, first.values + row_starts)
        last = tf.gather(points.last, end.values + row_starts - 1)
        return Pieces(ids, *map(ids.with_values, decoded.spans(first, last)))

    def _normalize(self, texts: tf.Tensor) -> tuple[Decoded, CodePoints, tf.Tensor]:
        decoded = decode(texts)
        points = decoded.points
        for step in self._steps:
            points = step(points)
        size = tf.size(texts, tf.int64)
        ragged = tf.RaggedTensor.from_value_rowids(points.values, points.rows, size, validate=False)
        return decoded, points, tf.strings.unicode_encode(ragged, "UTF-8")


class _Mapping:
    """Replaces characters, and with `graphemes` also pairs of characters.

    Matches tokenizers, precompiled.rs: a short grapheme whose beginning has a rule becomes what the
    rule says, without the rest of the grapheme.
    """

    def __init__(self, rules: dict[str, str], graphemes: bool = False):
        rules = {key: value for key, value in rules.items() if key}
        if any(len(key) > 2 for key in rules):
            raise ConfigError("`precompiled_charsmap` must map at most 2 characters at a time.")
        self._graphemes = graphemes
        table = np.zeros(NUM_CODE_POINTS, np.int32)
        pairs = {}
        for number, key in enumerate(rules, start=1):  # 0: no rule
            if len(key) == 1:
                table[ord(key)] = number
            else:
                pairs[ord(key[0]) << CODE_POINT_BITS | ord(key[1])] = number
        self._table = CodePointTable(table)
        self._pairs = np.array([*sorted(pairs), 2**62], np.int64)
        self._pair_rules = np.array([*(pairs[key] for key in sorted(pairs)), 0], np.int32)
        lengths = np.array([1, *map(len, rules.values())], np.int64)
        self._lengths, self._starts = lengths, np.cumsum(lengths) - lengths
        self._values = np.array([0, *map(ord, "".join(rules.values()))], np.int32)
        if graphemes:
            classes = _CONTROL * unicode_data().properties["control"]  # categories Cc and Cf
            classes[[0x09, 0x0A, 0x0D, 0x2028, 0x2029]] = _CONTROL
            classes[0xFFFD] = 0
            classes[hugging_face_data()[0]["extend"]] = _EXTEND
            classes[hugging_face_data()[0]["prepend"]] = _PREPEND
            self._classes = CodePointTable(classes)

    def __call__(self, points: CodePoints) -> CodePoints:
        rules, removed = self._table(points.values), tf.zeros_like(points.values, tf.bool)
        if self._graphemes:
            rules, removed, points = self._by_grapheme(points, rules)
        counts = tf.where(removed, tf.constant(0, tf.int64), tf.gather(self._lengths, rules))
        sources = tf.repeat(tf.range(tf.size(rules, tf.int64)), counts)
        within = tf.range(tf.size(sources, tf.int64))
        within -= tf.gather(tf.cumsum(counts, exclusive=True), sources)
        points, rules = points.gather(sources), tf.gather(rules, sources)
        places = tf.gather(tf.constant(self._starts), rules) + tf.where(rules > 0, within, 0)
        mapped = tf.gather(tf.constant(self._values), places)
        return points._replace(values=tf.where(rules > 0, mapped, points.values))

    def _by_grapheme(self, points: CodePoints, rules: tf.Tensor):
        values, classes = points.values, self._classes(points.values)
        before, prior = tf.roll(values, 1, 0), tf.roll(classes, 1, 0)
        joined = (classes == _EXTEND) & (prior != _CONTROL)
        joined |= (prior == _PREPEND) & (classes != _CONTROL)
        joined |= (before == 0x0D) & (values == 0x0A)
        joined &= ~points.starts_row()
        graphemes = tf.cumsum(tf.cast(~joined, tf.int64)) - 1  # [C]
        begins = tf.where(~joined)[:, 0]  # [G]
        ends = tf.concat([begins[1:], [tf.size(values, tf.int64)]], axis=0)[: tf.size(begins)] - 1
        sizes = tf.math.segment_sum(utf8_lengths(values), graphemes)
        short = (sizes <= MOST_RULE_BYTES) & (ends > begins)
        pairs = tf.cast(tf.gather(values, begins), tf.int64) * 2**CODE_POINT_BITS
        pairs += tf.cast(tf.gather(values, tf.minimum(begins + 1, ends)), tf.int64)
        index = tf.searchsorted(tf.constant(self._pairs), pairs)
        same = tf.gather(tf.constant(self._pairs), index) == pairs
        pair_rules = tf.where(same, tf.gather(tf.constant(self._pair_rules), index), 0)
        first_rules = tf.gather(rules, begins)
        whole = tf.where(short, tf.where(first_rules > 0, first_rules, pair_rules), 0)  # [G]
        whole, is_whole = tf.gather(whole, graphemes), tf.gather(whole > 0, graphemes)  # [C]
        last = tf.where(is_whole, tf.gather(points.last, tf.gather(ends, graphemes)), points.last)
        return tf.where(is_whole, whole, rules), is_whole & joined, points._replace(last=last)


@functools.cache
def _known_mapping(kind: str) -> _Mapping:
    return _Mapping(hugging_face_data()[1][kind])


class _Runs:
    """Replaces each pair of a character, or each run of 2 or more, by another character."""

    def __init__(self, char: str, content: str, pairs: bool):
        self._char, self._content, self._pairs = ord(char), ord(content), pairs

    def __call__(self, points: CodePoints) -> CodePoints:
        places = tf.where(points.values == self._char)[:, 0]
        count = tf.size(places, tf.int64)
        order = tf.range(count)
        rows = tf.gather(points.rows, places)
        new = starts(places - order) | starts(rows)
        within = order - tf.gather(tf.where(new)[:, 0], tf.cumsum(tf.cast(new, tf.int64)) - 1)
        # The last one stays, as in tokenizers, so that spans agree.
        is_last = tf.concat([new[1:], tf.ones_like(new[:1])], axis=0)[: tf.size(new)]
        stays = (within % 2 == 1) if self._pairs else is_last & (within > 0)
        goes = ~is_last & (within % 2 == 0) if self._pairs else ~is_last
        stays, goes = (tf.boolean_mask(places, of)[:, tf.newaxis] for of in (stays, goes))
        content = tf.fill([tf.size(stays)], self._content)
        values = tf.tensor_scatter_nd_update(points.values, stays, content)
        gone = tf.scatter_nd(goes, tf.ones_like(goes[:, 0]), [tf.size(values, tf.int64)])
        return points._replace(values=values).keep(gone == 0)


class _Strip:
    """Removes white space at the ends of each string."""

    def __init__(self, left: bool, right: bool):
        self._sides = (left, right)
        self._space = CodePointTable(white_space())

    def __call__(self, points: CodePoints) -> CodePoints:
        text = self._space(points.values) == 0
        place = tf.range(tf.size(points.values, tf.int64))
        rows = tf.reduce_max(tf.concat([points.rows, [-1]], axis=0)) + 1
        far = tf.where(text, place, -1)
        last = tf.gather(tf.math.unsorted_segment_max(far, points.rows, rows), points.rows)
        near = tf.where(text, place, place.dtype.max)
        first = tf.gather(tf.math.unsorted_segment_min(near, points.rows, rows), points.rows)
        left, right = self._sides
        kept = tf.ones_like(text)
        kept = kept & (place >= first) if left else kept
        return points.keep(kept & (place <= last) if right else kept)


def white_space() -> np.ndarray:
    """Returns 1 for each white space, int32 `[NUM_CODE_POINTS]`."""
    values = np.zeros(NUM_CODE_POINTS, np.int32)
    values[list(WHITE_SPACE)] = 1
    return values
