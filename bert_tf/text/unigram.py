"""Unigram language models and their normalizers in the graph, as Hugging Face's `tokenizers`.

Each step of the normalization turns code points into code points and remembers which original ones
they were made of. Words are cut where no piece can be, and the pieces of all different parts are
found together, in a loop over their characters. tensorflow-text's `SentencepieceTokenizer` adds
scores in float32 and normalizes text in another way, so its ids differ.

Glossary: `B` strings, `C` code points of all strings, `G` graphemes, `W` parts of words,
`U` different parts, `K` code points of all different parts (between them are K + 1 nodes),
`T` pieces of a string, `V` vocabulary.

References: Kudo, arXiv 1804.10959; huggingface/tokenizers `src/normalizers`, `unigram/model.rs`,
`metaspace.rs`.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import kept_values, row_ids
from bert_tf.errors import ConfigError
from bert_tf.text import code_points
from bert_tf.text.code_points import CodePoints, CodePointTable, PlacedIds, SparseTable, checked
from bert_tf.text.composition import composed
from bert_tf.text.sentencepiece_model import MOST_RESULT_BYTES, MOST_RULE_BYTES, charsmap_rules
from bert_tf.text.subword_definition import Parts
from bert_tf.text.tokenizer_json import flat
from bert_tf.text.unicode_tables import hugging_face_data, unicode_data

Step = Callable[[CodePoints], CodePoints]
_BLANK = 0x20
_EXTEND, _PREPEND, _CONTROL = 1, 2, 3  # Grapheme_Cluster_Break, as far as it matters here


def steps(normalizer: dict | None) -> list[Step]:
    """Returns the steps of the `normalizer` in a `tokenizer.json`.

    Raises `ConfigError` if a step is not supported. The message says which are. Raises `DataError`
    if a `precompiled_charsmap` is malformed.
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
            case "NFC", _:
                found.append(composed)
            case "NFKD", _ if pending and pending[-1].get("type") == "StripAccents":
                pending.pop()  # without marks, their order does not matter
                found.append(_Mapping(hugging_face_data().mappings["unaccented"]))
            case "Strip", _:
                sides = (bool(step.get(side)) for side in ("strip_left", "strip_right"))
                found.append(functools.partial(_stripped, *sides))
            case "Replace", {"String": str(old)} if len(old) == 1 and is_text:
                found.append(_Mapping({old: content}))
            case "Replace", {"String": str(old)} if len(old) == 2 and old[0] == old[1] and is_char:
                is_old = functools.partial(tf.equal, ord(old[0]))
                found.append(functools.partial(_replaced_runs, is_old, content, True))
            case "Replace", {"Regex": " {2,}"} if is_char:
                is_blank = functools.partial(tf.equal, _BLANK)
                found.append(functools.partial(_replaced_runs, is_blank, content, False))
            case "Replace", {"Regex": r"\s{2,}|[\n\r\t]"} if content == " ":  # transformers 5
                found.append(_Mapping(dict.fromkeys("\n\r\t", " ")))
                found.append(functools.partial(_replaced_runs, _is_space, " ", False))
            case _:
                raise ConfigError(
                    "Every normalizer of the tokenizer must be Precompiled, Lowercase, NFC, NFKD "
                    "before StripAccents, Strip, or Replace of one character, of a character "
                    r"twice, of ' {2,}' or, by a space, of '\s{2,}|[\n\r\t]'. "
                    f"Received: {step!r:.200}."
                )
    return found


class Normalized(code_points.PieceModel):
    """Normalizes text before a model converts it to ids. Spans are those of the original text."""

    def __init__(self, steps: list[Step], model=None):
        self._steps, self._model = steps, model

    def __call__(self, texts: list[str]) -> list[str]:
        """Returns normalized texts, outside of any graph."""
        with tf.init_scope():
            return [text.decode() for text in self._normalize(tf.constant(texts))[2].numpy()]

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
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


def _is_space(values: tf.Tensor) -> tf.Tensor:
    return code_points.white_space()(values) > 0


def _replaced_runs(is_one: Callable, content: str, pairs: bool, points: CodePoints) -> CodePoints:
    """Replaces each pair of some characters, or each run of 2 or more, by another character."""
    is_char = is_one(points.values)
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
    is_text = ~_is_space(points.values)
    places, rows = tf.range(tf.size(is_text, tf.int64)), points.rows
    first = tf.math.segment_min(tf.where(is_text, places, places.dtype.max), rows)
    last = tf.math.segment_max(tf.where(is_text, places, -1), rows)
    is_before, is_after = places < tf.gather(first, rows), places > tf.gather(last, rows)
    return points.keep(~(left & is_before | right & is_after))


UNKNOWN_PENALTY = 10.0  # tokenizers, unigram/model.rs, `K_UNK_PENALTY`
METASPACE = 0x2581
_CHARS_AT_ONCE = 2**19  # whose pairs are sorted at a time


class Unigram(code_points.PieceModel):
    """Converts text to ids.

    Args:
        parts: The definition of the tokenizer.
    """

    def __init__(self, parts: Parts):
        self._parts, self._unk_id = parts, parts.model["unk_id"]
        pieces = [piece for piece, _ in parts.model["vocab"]]
        scores = np.array([score for _, score in parts.model["vocab"]], np.float64)
        # The last scores belong to an unknown character, and to what is no piece.
        self._scores = np.append(scores, [scores.min() - UNKNOWN_PENALTY, -np.inf])  # [V+2]
        self._children, self._piece_of_node = _trie(pieces)
        # Words can be cut between characters that are next to each other in no piece, if sums are
        # exact: those of float32 in float64.
        joins = _joins(pieces)
        self._exact = bool(np.all(scores == scores.astype(np.float32)))
        self._joins = SparseTable(joins, np.ones_like(joins), not self._exact)

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        points, row_splits = code_points.decode(checked(texts, self.errors))
        points, is_start = self._words(points)
        is_cut = self._joins(tf.roll(points.values, 1, 0), points.values) == 0
        first = tf.where(is_start | is_cut)[:, 0]  # [W]
        parts = code_points.strings_from(points, first, tf.size(texts, tf.int64))
        ids, begins, ends = code_points.pieces_of_words(parts, self._segment)
        # Unknown characters next to each other in a word are one piece.
        is_new = code_points.starts(ids.values) | (ids.values != self._unk_id)
        begins_word = tf.gather(is_start, begins)
        is_new |= begins_word
        ids = kept_values(self.marked(ids, begins_word), is_new)
        first = tf.gather(points.first, tf.boolean_mask(begins, is_new))
        last = tf.gather(points.last, tf.boolean_mask(ends, tf.roll(is_new, -1, 0)) - 1)
        return code_points.placed(row_splits, ids, first, last + 1)

    def _words(self, points: CodePoints) -> tuple[CodePoints, tf.Tensor]:
        """Returns the code points with `▁` for spaces, and which of them begin a word."""
        if self._parts.split_at_white_space:
            space = _is_space(points.values)
            before = tf.roll(space, 1, 0) | points.starts_row()
            kept = tf.where(~space)[:, 0]
            points, begins = points.gather(kept), tf.gather(before, kept)
        else:
            blank = points.values == _BLANK
            points = points._replace(values=tf.where(blank, METASPACE, points.values))
            begins = points.starts_row()
        if self._parts.add_prefix_space:
            lacks = begins & (points.values != METASPACE)
            points, begins = points.with_marks(lacks, METASPACE)
        return points, begins | (points.values == METASPACE)

    def _segment(self, parts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the ids (int32) of the pieces of parts `[U]`, where they begin, row splits.

        Step i finds the best way to the end of character i of each part.
        """
        parts = tf.strings.unicode_decode(parts, "UTF-8")  # ragged int32 [U, (characters)]
        unknown = len(self._scores) - 2  # V

        def step(index, parts_left, ways, edges):
            places, limits, totals = parts_left  # those that are not at their end, [U]
            count = tf.size(places, tf.int64)
            # Pieces that have begun: in which part, where, the node of the trie, the total there.
            begun = tf.range(count), places, tf.zeros_like(places, tf.int32), totals
            owners, first, nodes, sums = (tf.concat(both, axis=0) for both in zip(ways, begun))
            here = tf.gather(places, owners)
            nodes = self._children(nodes, tf.gather(parts.values, here))
            ids = tf.gather(tf.constant(self._piece_of_node), nodes)
            ids = tf.where((ids > unknown) & (first == here), unknown, ids)
            reached = sums + tf.gather(tf.constant(self._scores), ids)
            totals = tf.math.unsorted_segment_max(reached, owners, count)
            order = tf.range(tf.size(ids, tf.int64))
            order = tf.where(reached == tf.gather(totals, owners), order, order.dtype.max)
            best = tf.math.unsorted_segment_min(order, owners, count)  # the first of equal ones
            found = places + 1, tf.gather(first, best), tf.cast(tf.gather(ids, best), tf.int64)
            edges = edges.write(index, tf.stack(found, axis=1))
            goes_on = places + 1 < limits
            left = tf.where((nodes > 0) & tf.gather(goes_on, owners))[:, 0]
            numbers = tf.cumsum(tf.cast(goes_on, tf.int64)) - 1
            ways = [tf.gather(of, left) for of in (tf.gather(numbers, owners), first, nodes, sums)]
            parts_left = [tf.boolean_mask(of, goes_on) for of in (places + 1, limits, totals)]
            return index + 1, parts_left, ways, edges

        begins, size = parts.row_starts(), tf.size(parts.values, tf.int64)
        none, vector, scalar = begins[:0], tf.TensorShape([None]), tf.TensorShape([])
        longest, _, _, edges = tf.while_loop(
            lambda index, parts_left, *_: tf.size(parts_left[0]) > 0,
            step,
            (
                0,
                [begins, parts.row_limits(), tf.zeros_like(begins, tf.float64)],
                [none, none, tf.cast(none, tf.int32), tf.cast(none, tf.float64)],
                tf.TensorArray(tf.int64, 0, True, infer_shape=False, element_shape=[None, 3]),
            ),
            shape_invariants=(scalar, [vector] * 3, [vector] * 4, scalar),
        )
        after, first, ids = tf.unstack(edges.concat(), axis=1)
        first, ids = (tf.scatter_nd(after[:, tf.newaxis], of, [size + 1]) for of in (first, ids))

        # Follow the edges back from the ends of parts, in steps of 1, 2, 4, ...
        def follow(reach, back, on_way):
            before = tf.math.unsorted_segment_max(on_way, back, size + 1)
            return reach * 2, tf.gather(back, back), tf.maximum(on_way, before)

        on_way = tf.cast(code_points.mask_of(parts.row_splits, size + 1), tf.int32)  # [K+1]
        _, _, on_way = tf.while_loop(
            lambda reach, *_: reach <= longest, follow, (tf.constant(1), first, on_way)
        )
        first, ids = (tf.boolean_mask(of[1:], on_way[1:] > 0) for of in (first, ids))
        ids = tf.where(ids < unknown, tf.cast(ids, tf.int32), self._unk_id)
        return ids, first, parts.row_splits


def _joins(pieces: Sequence[str]) -> np.ndarray:
    """Returns the pairs of characters that are next to each other in a piece, sorted."""
    chars, joins = code_points.numbers("\0".join(pieces)), np.zeros(0, np.int64)
    for start in range(0, len(chars), _CHARS_AT_ONCE):
        part = chars[start : start + _CHARS_AT_ONCE + 1].astype(np.int64)
        joins = np.union1d(joins, code_points.pair(part[:-1], part[1:]))
    return joins


def _trie(pieces: Sequence[str]) -> tuple[SparseTable, np.ndarray]:
    """Returns the trie of the pieces. Node 0 is its root.

    The table has the node after a node and a code point, or 0. The array has the id of the piece
    that ends at each node, or `V + 1`.
    """
    ids = {piece: index for index, piece in enumerate(pieces) if piece}  # the last of equal ones
    chars = code_points.numbers("".join(ids))
    lengths = np.array([*map(len, ids)], np.int64)
    begins = np.cumsum(lengths) - lengths
    nodes = np.zeros(len(ids), np.int64)  # where each piece has arrived
    keys, size = np.empty(len(chars), np.int64), 1  # what stays empty takes no memory
    for place in range(lengths.max(initial=0)):
        left = np.where(lengths > place)[0]
        steps = code_points.pair(nodes[left], chars[begins[left] + place])
        level, index = np.unique(steps, return_inverse=True)
        nodes[left] = size + index
        keys[size - 1 : size - 1 + len(level)] = level
        size += len(level)
    piece_of_node = np.full(size, len(pieces) + 1, np.int32)
    piece_of_node[nodes] = [*ids.values()]
    children = SparseTable(keys[: size - 1], np.arange(1, size, dtype=np.int32), 0)
    return children, piece_of_node
