"""Unigram language models in the graph, as Hugging Face's `tokenizers` computes them.

The pieces of all different words are found together: a trie gives the pieces at each position, and
a loop over the distances from cuts, which no piece crosses, finds the best ways. tensorflow-text's
`SentencepieceTokenizer` adds scores in float32 and normalizes text in another way, so its ids
differ.

Glossary: `B` strings, `W` words, `U` different words, `K` code points of all different words
(between them are K + 1 nodes), `E` edges (a piece at a position), `T` pieces of a string, `V`
vocabulary.

References: Kudo, arXiv 1804.10959; huggingface/tokenizers `unigram/model.rs`, `metaspace.rs`.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.text.code_points import (
    CODE_POINT_BITS,
    CodePoints,
    PieceModel,
    PlacedIds,
    SparseTable,
    decode,
    mask_of,
    pieces_of_words,
    placed,
    starts,
    white_space,
)
from bert_tf.text.strings import checked

UNKNOWN_PENALTY = 10.0  # tokenizers, unigram/model.rs, `K_UNK_PENALTY`
METASPACE = 0x2581
_STEPS = 128  # of the inner loop, which copies the totals of as many steps
_BLANK = 0x20


class Unigram(PieceModel):
    """Converts text to ids.

    Args:
        pieces: The pieces in the order of their ids, with their scores.
        unk_id: The id of characters that are in no piece.
        split_at_white_space: Whether white space is removed before words are marked.
        add_prefix_space: Whether `▁` is put before words that do not begin with it.
    """

    def __init__(
        self,
        pieces: Sequence[tuple[str, float]],
        unk_id: int,
        split_at_white_space: bool,
        add_prefix_space: bool,
    ):
        self._unk_id = unk_id
        self._split_at_white_space = split_at_white_space
        self._add_prefix_space = add_prefix_space
        scores = np.array([score for _, score in pieces], np.float64)
        # The last score belongs to an unknown character.
        self._scores = np.append(scores, scores.min() - UNKNOWN_PENALTY)  # [V+1]
        # Sums of float32 in float64 are exact, so words can be cut where no piece crosses.
        self._exact = bool(np.all(scores == scores.astype(np.float32)))
        self._children, self._piece_of_node = _trie([piece for piece, _ in pieces])

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        """Returns the pieces of `texts` (strings `[B]`)."""
        points, row_splits = decode(checked(texts, self.errors))
        points, is_start = self._words(points)
        first = tf.where(is_start)[:, 0]  # [W]
        words = tf.RaggedTensor.from_row_starts(points.values, first, validate=False)
        rows, size = tf.gather(points.rows, first), tf.size(texts, tf.int64)
        words = tf.RaggedTensor.from_value_rowids(words, rows, size, validate=False)
        words = tf.strings.unicode_encode(words, "UTF-8")  # [B, (W)]
        ids, begins, ends = pieces_of_words(words, self._segment)
        spans = tf.gather(points.first, begins), tf.gather(points.last, ends - 1) + 1
        return placed(row_splits, ids, *spans)

    def _words(self, points: CodePoints) -> tuple[CodePoints, tf.Tensor]:
        """Returns the code points with `▁` for spaces, and which of them begin a word."""
        if self._split_at_white_space:
            space = white_space()(points.values) > 0
            before = tf.roll(space, 1, 0) | points.starts_row()
            kept = tf.where(~space)[:, 0]
            points, begins = points.gather(kept), tf.gather(before, kept)
        else:
            blank = points.values == _BLANK
            points = points._replace(values=tf.where(blank, METASPACE, points.values))
            begins = points.starts_row()
        if self._add_prefix_space:
            lacks = begins & (points.values != METASPACE)
            points, begins = points.with_marks(lacks, METASPACE)
        return points, begins | (points.values == METASPACE)

    def _segment(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the ids (int32) of the pieces of words `[U]`, where they begin, row splits."""
        words = tf.strings.unicode_decode(words, "UTF-8")  # ragged int32 [U, (characters)]
        size = tf.size(words.values, tf.int64)  # K
        ends = tf.gather(words.row_splits[1:], words.value_rowids())  # of its word, [K]
        first, after, ids = self._edges(words.values, ends)
        # Ways are independent between cuts: nodes that end words and, if sums are exact, all that
        # no piece crosses.
        is_cut = mask_of(words.row_splits, size + 1)  # [K+1]
        if self._exact:
            ones = tf.ones_like(first)
            crossed = tf.math.unsorted_segment_sum(ones, first + 1, size + 1)
            crossed -= tf.math.unsorted_segment_sum(ones, after, size + 1)
            is_cut = tf.cumsum(crossed) == 0
        chosen = self._best_edges(first, after, tf.gather(tf.constant(self._scores), ids), is_cut)
        first, ids = tf.gather(first, chosen), tf.gather(ids, chosen)
        ids = tf.where(ids < len(self._scores) - 1, tf.cast(ids, tf.int32), self._unk_id)
        # Unknown characters next to each other are one piece.
        is_new = starts(tf.gather(ends, first)) | starts(ids) | (ids != self._unk_id)
        return tf.boolean_mask(ids, is_new), tf.boolean_mask(first, is_new), words.row_splits

    def _edges(self, code_points, ends) -> list[tf.Tensor]:
        """Returns where each piece in the words begins and ends, and its id, all int64 `[E]`.

        Of those that end at one node, longer ones are first. A character that is no piece is an
        edge too, with an id of `V`.
        """
        size = tf.size(code_points, tf.int64)
        code_points = tf.cast(code_points, tf.int64)

        def step(length, first, nodes, edges):
            nodes = tf.cast(nodes, tf.int64) * 2**CODE_POINT_BITS
            nodes = self._children(nodes + tf.gather(code_points, first + length))
            known = tf.where(nodes >= 0)[:, 0]
            first, nodes = tf.gather(first, known), tf.gather(nodes, known)
            ids, after = tf.gather(tf.constant(self._piece_of_node), nodes), first + length + 1
            found = tf.stack([first, after, tf.cast(ids, tf.int64)], axis=1)
            edges = edges.write(tf.cast(length, tf.int32), tf.boolean_mask(found, ids >= 0))
            more = tf.where(after < tf.gather(ends, first))[:, 0]
            return length + 1, tf.gather(first, more), tf.gather(nodes, more), edges

        rows = dict(dynamic_size=True, infer_shape=False, element_shape=[None, 3])
        vector, scalar = tf.TensorShape([None]), tf.TensorShape([])
        _, _, _, edges = tf.while_loop(
            lambda length, first, *_: (length == 0) | (tf.size(first) > 0),
            step,
            (
                tf.constant(0, tf.int64),
                tf.range(size),
                tf.zeros([size], tf.int32),
                tf.TensorArray(tf.int64, 0, **rows),
            ),
            shape_invariants=(scalar, vector, vector, scalar),
        )
        edges = edges.concat()[::-1]  # [E, 3]
        known = mask_of(tf.boolean_mask(edges[:, 0], edges[:, 1] == edges[:, 0] + 1), size)
        unknown = tf.where(~known)[:, 0]
        unknown_ids = tf.ones_like(unknown) * (len(self._scores) - 1)
        unknown = tf.stack([unknown, unknown + 1, unknown_ids], axis=1)
        return tf.unstack(tf.concat([edges, unknown], axis=0), axis=1)

    def _best_edges(self, first, after, scores, is_cut) -> tf.Tensor:
        """Returns the edges of the best ways between cuts, of the first of equally good ones."""
        size, count = tf.size(is_cut, tf.int64), tf.size(first, tf.int64)
        totals, longest_way = _totals(first, after, scores, is_cut)
        zero = tf.zeros([], tf.float64)
        before = tf.where(tf.gather(is_cut, first), zero, tf.gather(totals, first))
        is_best = before + scores == tf.gather(totals, after)
        edges = tf.where(is_best, tf.range(count), count)
        chosen = tf.math.unsorted_segment_min(edges, after, size)[1:]  # to each node but the first
        # Follow the edges back from each cut, in steps of 1, 2, 4, ...
        back = tf.concat([[0], tf.gather(first, chosen)], axis=0)

        def follow(reach, back, on_way):
            before = tf.math.unsorted_segment_max(on_way, back, size)
            return reach * 2, tf.gather(back, back), tf.maximum(on_way, before)

        _, _, on_way = tf.while_loop(
            lambda reach, *_: reach <= longest_way,
            follow,
            (tf.constant(1, tf.int64), back, tf.cast(is_cut, tf.int32)),
        )
        return tf.boolean_mask(chosen, on_way[1:] > 0)


def _totals(first, after, scores, is_cut) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the best sum of scores from the cut before each node to it, and the longest way.

    A step computes the nodes that are equally far from their cuts, and copies the totals before
    it, so the inner loop begins with those that an edge can still reach.

    Args:
        first, after, scores: Edges `[E]`, at least one to each node but the first.
        is_cut: bool `[K+1]`.

    Returns:
        float64 `[K+1]`, and the most nodes from a cut to the next, int64.
    """
    cuts, size = tf.where(is_cut)[:, 0], tf.size(is_cut, tf.int64)
    steps = after - tf.gather(cuts, tf.searchsorted(cuts, first, side="right") - 1)
    order = tf.argsort(steps * size + after)
    steps, first, after, scores = (tf.gather(of, order) for of in (steps, first, after, scores))
    # Nodes have numbers from 1 in the order of their computation; 0 is the beginning of a way.
    is_new = starts(after)
    numbers = tf.cumsum(tf.cast(is_new, tf.int64))  # [E]
    nodes = tf.boolean_mask(after, is_new)[:, tf.newaxis]
    number_of_node = tf.scatter_nd(nodes, tf.range(1, size), [size])
    is_begin = tf.gather(is_cut, first)
    sources = tf.where(is_begin, tf.zeros_like(first), tf.gather(number_of_node, first))
    last = tf.concat([[0], steps], axis=0)[-1]
    bounds = tf.searchsorted(steps, tf.range(last + 2))  # the edges of each step
    node_bounds = tf.gather(tf.concat([numbers, [size]], axis=0), bounds)
    longest = tf.reduce_max(after - first)

    def compute(step, base, near, totals):
        def inner(step, near):  # near[0] is 0, and near[i] the total of number base + i
            low, high = bounds[step], bounds[step + 1]
            sums = tf.gather(near, tf.maximum(sources[low:high] - base, 0)) + scores[low:high]
            best = tf.math.segment_max(sums, numbers[low:high] - node_bounds[step])
            return step + 1, tf.concat([near, best], axis=0)

        end, known = tf.minimum(step + _STEPS, last + 1), tf.size(near)
        step, near = tf.while_loop(
            lambda step, _: step < end, inner, (step, near), shape_invariants=(scalar, vector)
        )
        totals = totals.write(totals.size(), near[known:])
        reached = node_bounds[tf.maximum(step - longest, 0)] - 1
        near = tf.concat([near[:1], near[reached - base + 1 :]], axis=0)
        return step, reached, near, totals

    scalar, vector = tf.TensorShape([]), tf.TensorShape([None])
    totals = tf.TensorArray(tf.float64, 0, True, infer_shape=False, element_shape=vector)
    start = tf.constant(1, tf.int64), tf.constant(0, tf.int64), tf.zeros([1], tf.float64), totals
    *_, totals = tf.while_loop(
        lambda step, *_: step <= last,
        compute,
        start,
        shape_invariants=(scalar, scalar, vector, scalar),
    )
    return tf.scatter_nd(nodes, totals.concat(), [size]), last


def _trie(pieces: Sequence[str]) -> tuple[SparseTable, np.ndarray]:
    """Returns the trie of the pieces. Node 0 is its root.

    The table has the node after a node and a code point, which are one key, or -1. The array has
    the id of the piece that ends at each node, or -1.
    """
    ids = {piece: index for index, piece in enumerate(pieces)}  # of a repeated one, the last
    code_points = np.fromiter(map(ord, "".join(ids)), np.int64)
    lengths = np.array([*map(len, ids)])
    begins = np.cumsum(lengths) - lengths
    nodes = np.zeros(len(ids), np.int64)  # where each piece has arrived
    keys, size = [], 1
    for place in range(lengths.max()):
        left = np.where(lengths > place)[0]
        steps = nodes[left] << CODE_POINT_BITS | code_points[begins[left] + place]
        level, index = np.unique(steps, return_inverse=True)
        nodes[left] = size + index
        keys.append(level)
        size += len(level)
    piece_of_node = np.full(size, -1, np.int32)
    piece_of_node[nodes] = [*ids.values()]
    keys = np.concatenate([np.zeros(0, np.int64), *keys])  # none if the only piece is empty
    return SparseTable(keys, np.arange(1, size), -1), piece_of_node
