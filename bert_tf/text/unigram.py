"""Unigram language models in the graph, as Hugging Face's `tokenizers` computes them.

Words are cut where no piece can be, and the pieces of all different parts are found together, in a
loop over their characters. tensorflow-text's `SentencepieceTokenizer` adds scores in float32 and
normalizes text in another way, so its ids differ.

Glossary: `B` strings, `W` parts of words, `U` different parts, `K` code points of all different
parts (between them are K + 1 nodes), `T` pieces of a string, `V` vocabulary.

References: Kudo, arXiv 1804.10959; huggingface/tokenizers `unigram/model.rs`, `metaspace.rs`.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import kept_values
from bert_tf.text import code_points
from bert_tf.text.code_points import CodePoints, PlacedIds, SparseTable, checked
from bert_tf.text.subword_definition import Parts

UNKNOWN_PENALTY = 10.0  # tokenizers, unigram/model.rs, `K_UNK_PENALTY`
METASPACE = 0x2581
_BLANK = 0x20
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
        """Returns the pieces of `texts` (strings `[B]`)."""
        points, row_splits = code_points.decode(checked(texts, self.errors))
        points, is_start = self._words(points)
        is_cut = self._joins(tf.roll(points.values, 1, 0), points.values) == 0
        first = tf.where(is_start | is_cut)[:, 0]  # [W]
        parts = tf.RaggedTensor.from_row_starts(points.values, first, validate=False)
        rows, size = tf.gather(points.rows, first), tf.size(texts, tf.int64)
        parts = tf.RaggedTensor.from_value_rowids(parts, rows, size, validate=False)
        parts = tf.strings.unicode_encode(parts, "UTF-8")  # [B, (W)]
        ids, begins, ends = code_points.pieces_of_words(parts, self._segment)
        # Unknown characters next to each other in a word are one piece.
        is_new = code_points.starts(ids.values) | (ids.values != self._unk_id)
        is_new |= tf.gather(is_start, begins)
        ids = kept_values(ids, is_new)
        first = tf.gather(points.first, tf.boolean_mask(begins, is_new))
        last = tf.gather(points.last, tf.boolean_mask(ends, tf.roll(is_new, -1, 0)) - 1)
        return code_points.placed(row_splits, ids, first, last + 1)

    def _words(self, points: CodePoints) -> tuple[CodePoints, tf.Tensor]:
        """Returns the code points with `▁` for spaces, and which of them begin a word."""
        if self._parts.split_at_white_space:
            space = code_points.white_space()(points.values) > 0
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
