"""The normalizers of Hugging Face's `tokenizers` that Unigram models use, in the graph.

Each step turns code points into code points and remembers which original ones they were made of.

Glossary: `C` code points of all strings, `G` graphemes.

Reference: huggingface/tokenizers `src/normalizers`.
"""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.errors import ConfigError
from bert_tf.text import code_points
from bert_tf.text.code_points import CodePoints, CodePointTable, PlacedIds, SparseTable, checked
from bert_tf.text.sentencepiece_model import MOST_RESULT_BYTES, MOST_RULE_BYTES, charsmap_rules
from bert_tf.text.tokenizer_json import flat
from bert_tf.text.unicode_tables import hugging_face_data, unicode_data

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
        content = step.get("content")
        is_text = isinstance(content, str) and len(content) <= MOST_RESULT_BYTES
        is_char = is_text and len(content) == 1
        match step.get("type"), step.get("pattern"):
            case "Precompiled", _:
                if charsmap := step.get("precompiled_charsmap"):
                    found.append(_Mapping(charsmap_rules(charsmap), True))
            case "Lowercase", _:
                found.append(_Mapping(hugging_face_data().mappings["lower"]))
            case "NFKD", _ if pending and pending[-1].get("type") == "StripAccents":
                pending.pop()  # without marks, their order does not matter
                found.append(_Mapping(hugging_face_data().mappings["unaccented"]))
            case "Strip", _:
                sides = (bool(step.get(side)) for side in ("strip_left", "strip_right"))
                found.append(functools.partial(_stripped, *sides))
            case "Replace", {"String": str(old)} if len(old) == 1 and is_text:
                found.append(_Mapping({old: content}))
            case "Replace", {"String": str(old)} if len(old) == 2 and old[0] == old[1] and is_char:
                found.append(functools.partial(_replaced_runs, old[0], content, True))
            case "Replace", {"Regex": " {2,}"} if is_char:
                found.append(functools.partial(_replaced_runs, " ", content, False))
            case _:
                raise ConfigError(
                    "Every normalizer of the tokenizer must be Precompiled, Lowercase, NFKD before "
                    "StripAccents, Strip, or Replace of one character, of a character twice or of "
                    f"' {{2,}}'. Received: {step!r:.200}."
                )
    return found


class Normalized(code_points.PieceModel):
    """Normalizes text before a model converts it to ids. Spans are those of the original text."""

    def __init__(self, steps: list[Step], model=None):
        self._steps, self._model = steps, model

    def __call__(self, text: str) -> str:
        """Returns a normalized text, outside of any graph."""
        with tf.init_scope():
            return self._normalize(tf.constant([text]))[2].numpy()[0].decode()

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        """Returns the pieces of `texts` (strings `[B]`)."""
        row_splits, points, normalized = self._normalize(checked(texts, self.errors))
        ids, first, end = self._model.pieces(normalized)
        row_starts = tf.searchsorted(points.rows, tf.range(ids.nrows()), out_type=tf.int64)
        row_starts = tf.gather(row_starts, row_ids(ids.row_splits))
        is_empty, first = first.values == end.values, first.values + row_starts
        last = tf.maximum(end.values + row_starts - 1, row_starts)
        after = tf.gather(points.last, last) + 1
        first = tf.gather(points.first, tf.where(is_empty, last, first))
        # An empty span is after the code point before it, if there is one.
        first = tf.where(is_empty & (end.values > 0), after, first)
        return code_points.placed(row_splits, ids, first, tf.where(is_empty, first, after))

    def _normalize(self, texts: tf.Tensor) -> tuple[tf.Tensor, CodePoints, tf.Tensor]:
        points, row_splits = code_points.decode(texts)
        for step in self._steps:
            points = step(points)
        size = tf.size(texts, tf.int64)
        ragged = tf.RaggedTensor.from_value_rowids(points.values, points.rows, size, validate=False)
        return row_splits, points, tf.strings.unicode_encode(ragged, "UTF-8")


class _Mapping:
    """Replaces characters, and with `graphemes` also pairs of characters.

    Matches tokenizers, precompiled.rs: a short grapheme whose beginning has a rule becomes what the
    rule says, without the rest of the grapheme.
    """

    def __init__(self, rules: dict[str, str], graphemes: bool = False):
        rules = {key: value for key, value in rules.items() if key}
        if any(len(key) > 2 for key in rules):
            raise ConfigError("`precompiled_charsmap` must map at most 2 characters at a time.")
        table, pairs = np.zeros(code_points.NUM_CODE_POINTS, np.int32), {}
        for number, key in enumerate(rules, start=1):  # 0: no rule
            if len(key) == 1:
                table[ord(key)] = number
            else:
                pairs[code_points.pair(*map(ord, key))] = number
        self._graphemes = graphemes
        self._table = CodePointTable(table)
        self._pairs = SparseTable([*pairs], [*pairs.values()], 0)
        self._removal = len(rules) + 1
        self._replacements = code_points.Replacements([*rules.values(), ""])
        if graphemes:
            classes = _CONTROL * unicode_data().properties["control"]  # categories Cc and Cf
            classes[[0x09, 0x0A, 0x0D, 0x2028, 0x2029]] = _CONTROL
            classes[0xFFFD] = 0
            classes[hugging_face_data().properties["extend"]] = _EXTEND
            classes[hugging_face_data().properties["prepend"]] = _PREPEND
            self._classes = CodePointTable(classes)

    def __call__(self, points: CodePoints) -> CodePoints:
        rules = self._table(points.values)
        if self._graphemes:
            rules, points = self._by_grapheme(points, rules)
        values, sources = self._replacements(points.values, rules)
        return points.gather(sources)._replace(values=values)

    def _by_grapheme(self, points: CodePoints, rules: tf.Tensor):
        values, classes = points.values, self._classes(points.values)
        before, prior = tf.roll(values, 1, 0), tf.roll(classes, 1, 0)
        joined = (classes == _EXTEND) & (prior != _CONTROL)
        joined |= (prior == _PREPEND) & (classes != _CONTROL)
        joined |= (before == 0x0D) & (values == 0x0A)
        joined &= ~points.starts_row()
        graphemes = tf.cumsum(tf.cast(~joined, tf.int64)) - 1

        def of_graphemes(combine, of):  # [C] -> [C]
            return tf.gather(combine(of, graphemes), graphemes)

        sizes = code_points.utf8_lengths(values)
        whole_sizes = of_graphemes(tf.math.segment_sum, sizes)
        pairs = self._pairs(values, tf.roll(values, -1, 0))
        whole = tf.where(rules > 0, rules, pairs)  # for the grapheme that begins here
        whole = of_graphemes(tf.math.segment_max, tf.where(joined, 0, whole))
        is_whole = (whole > 0) & (whole_sizes > sizes) & (whole_sizes <= MOST_RULE_BYTES)
        last = tf.where(is_whole, of_graphemes(tf.math.segment_max, points.last), points.last)
        rules = tf.where(is_whole, tf.where(joined, self._removal, whole), rules)
        return rules, points._replace(last=last)


def _replaced_runs(char: str, content: str, pairs: bool, points: CodePoints) -> CodePoints:
    """Replaces each pair of a character, or each run of 2 or more, by another character."""
    is_char = points.values == ord(char)
    is_start = code_points.starts(is_char) | points.starts_row()
    is_last = tf.roll(is_start, -1, 0)
    is_odd = code_points.places_in_runs(is_start) % 2 == 1
    # The last one stays, as in tokenizers, so that spans agree.
    stays = is_odd if pairs else is_last & ~is_start
    goes = ~is_odd & ~is_last if pairs else ~is_last
    values = tf.where(is_char & stays, ord(content), points.values)
    return points._replace(values=values).keep(~(is_char & goes))


def _stripped(left: bool, right: bool, points: CodePoints) -> CodePoints:
    """Removes white space at the beginning and the end of each string, or at one of them."""
    is_text = code_points.white_space()(points.values) == 0
    places, rows = tf.range(tf.size(is_text, tf.int64)), points.rows
    first = tf.math.segment_min(tf.where(is_text, places, places.dtype.max), rows)
    last = tf.math.segment_max(tf.where(is_text, places, -1), rows)
    is_before, is_after = places < tf.gather(first, rows), places > tf.gather(last, rows)
    return points.keep(~(left & is_before | right & is_after))
