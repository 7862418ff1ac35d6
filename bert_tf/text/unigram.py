"""Unigram language models in the graph, as Hugging Face's `tokenizers` computes them.

The pieces of all different words are found together: a trie gives the pieces at each position, and
one loop over positions finds the best way to each end. tensorflow-text's `SentencepieceTokenizer`
adds scores in float32 and normalizes text in another way, so its ids differ.

Glossary: `B` strings, `W` words, `U` different words, `K` code points of all different words, `N`
nodes (a position in a word), `E` edges (a piece at a position), `T` pieces of a string, `V`
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
    decode,
    mask_of,
    pieces_of_words,
    starts,
    white_space,
)
from bert_tf.text.wordpiece import Pieces

UNKNOWN_PENALTY = 10.0  # tokenizers, unigram/model.rs, `K_UNK_PENALTY`
METASPACE = 0x2581
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
        self._keys, self._piece_of_node = _trie([piece for piece, _ in pieces])
        self._longest = max(len(piece) for piece, _ in pieces)

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces` of `texts` (strings `[B]`)."""
        decoded = decode(self.splitter.checked(texts))
        points, is_start = self._words(decoded.points)
        ids, begins, ends = pieces_of_words(points.values, is_start, self._segment)
        first, last = tf.gather(points.first, begins), tf.gather(points.last, ends - 1)
        return decoded.pieces(ids, first, last)

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
            sources = tf.repeat(tf.range(tf.size(lacks, tf.int64)), 1 + tf.cast(lacks, tf.int64))
            points, begins = points.gather(sources), tf.gather(lacks, sources) & starts(sources)
            points = points._replace(values=tf.where(begins, METASPACE, points.values))
        return points, begins | (points.values == METASPACE)

    def _segment(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the ids (int32) of the pieces of words `[U]`, where they begin, row splits."""
        words = tf.strings.unicode_decode(words, "UTF-8")  # ragged int32 [U, (characters)]
        size = tf.size(words.values, tf.int64)  # K
        ends = tf.gather(words.row_splits[1:], words.value_rowids())  # of its word, [K]
        first, after, ids = self._edges(words.values, ends)
        if self._exact:
            ones = tf.ones_like(first)
            crossed = tf.math.unsorted_segment_sum(ones, first + 1, size + 1)
            crossed = tf.cumsum(crossed - tf.math.unsorted_segment_sum(ones, after, size + 1))
            unit_starts = crossed[:-1] == 0
        else:
            unit_starts = starts(ends)
        unit_starts = tf.where(unit_starts)[:, 0]
        units = tf.RaggedTensor.from_row_starts(words.values, unit_starts, validate=False)
        chosen = self._best_edges(units, first, after, ids)
        chosen = tf.gather(chosen, tf.argsort(tf.gather(first, chosen)))
        first, ids = tf.gather(first, chosen), tf.gather(ids, chosen)
        ids = tf.where(ids < len(self._scores) - 1, tf.cast(ids, tf.int32), self._unk_id)
        # Unknown characters next to each other are one piece.
        is_new = starts(tf.gather(ends, first)) | starts(ids) | (ids != self._unk_id)
        return tf.boolean_mask(ids, is_new), tf.boolean_mask(first, is_new), words.row_splits

    def _edges(self, code_points, ends) -> list[tf.Tensor]:
        """Returns where each piece in the words begins and ends, and its id, all int64 `[E]`.

        A character that is no piece is an edge too, with an id of `V`.
        """
        size = tf.size(code_points, tf.int64)
        keys, piece_of_node = tf.constant(self._keys), tf.constant(self._piece_of_node)
        code_points = tf.cast(code_points, tf.int64)

        def step(length, first, nodes, edges):
            queries = nodes * 2**CODE_POINT_BITS + tf.gather(code_points, first + length)
            children = tf.searchsorted(keys, queries, out_type=tf.int64)
            known = tf.where(tf.gather(keys, children) == queries)[:, 0]
            first, nodes = tf.gather(first, known), tf.gather(children, known) + 1
            ids, after = tf.cast(tf.gather(piece_of_node, nodes), tf.int64), first + length + 1
            found = tf.boolean_mask(tf.stack([first, after, ids], axis=1), ids >= 0)
            edges = edges.write(tf.cast(length, tf.int32), found)
            more = tf.where(after < tf.gather(ends, first))[:, 0]
            return length + 1, tf.gather(first, more), tf.gather(nodes, more), edges

        start = tf.constant(0, tf.int64), tf.range(size), tf.zeros([size], tf.int64)
        scalar, vector = tf.TensorShape([]), tf.TensorShape([None])
        _, _, _, edges = tf.while_loop(
            lambda length, first, *_: (length == 0) | (tf.size(first) > 0),
            step,
            (*start, _rows([None, 3])),
            shape_invariants=(scalar, vector, vector, scalar),
        )
        edges = edges.concat()  # [E, 3]
        known = mask_of(tf.boolean_mask(edges[:, 0], edges[:, 1] == edges[:, 0] + 1), size)
        unknown = tf.where(~known)[:, 0]
        unknown_ids = tf.ones_like(unknown) * (len(self._scores) - 1)
        unknown = tf.stack([unknown, unknown + 1, unknown_ids], axis=1)
        return tf.unstack(tf.concat([edges, unknown], axis=0), axis=1)

    def _best_edges(self, units: tf.RaggedTensor, first, after, ids) -> tf.Tensor:
        """Returns the edges of the best way through each unit, of the first of equally good ones.

        Nodes are ordered by their position in the unit, and within a position by the length of the
        unit, so each step of the loop computes the next nodes of all units that are long enough.
        """
        lengths = units.row_lengths()
        rank = tf.math.invert_permutation(tf.argsort(-lengths))  # longer units first
        rank = tf.cast(rank, tf.int64)
        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
        at_least = tf.cumsum(tf.math.bincount(lengths, minlength=longest + 1), reverse=True)
        # The first node of each position; a unit of n code points has the positions 0 to n.
        offsets = tf.concat([[0], tf.cumsum(tf.cast(at_least, tf.int64))], axis=0)
        count = offsets[-1]  # N
        unit = tf.gather(units.value_rowids(), first)
        base = tf.gather(rank, unit)
        first = first - tf.gather(units.row_starts(), unit)
        after = after - tf.gather(units.row_starts(), unit)
        sources, targets = tf.gather(offsets, first) + base, tf.gather(offsets, after) + base
        # Matches tokenizers: of equally good edges, the one that begins first.
        order = tf.argsort(targets * count + sources)
        sources, targets = tf.gather(sources, order), tf.gather(targets, order)
        scores = tf.gather(tf.constant(self._scores), tf.gather(ids, order))
        bounds = tf.searchsorted(targets, offsets, out_type=tf.int64)
        window = self._longest + 1  # how many positions an edge can reach back, and one

        def step(position, recent, recent_start, chosen):
            low, high = bounds[position], bounds[position + 1]
            totals = tf.gather(recent, sources[low:high] - recent_start) + scores[low:high]
            node = targets[low:high] - offsets[position]
            best = tf.math.segment_max(totals, node)
            edges = tf.where(totals == tf.gather(best, node), tf.range(low, high), high)
            chosen = chosen.write(position - 1, tf.math.segment_min(edges, node))
            start = offsets[tf.maximum(position + 1 - window, 0)]
            recent = tf.concat([recent[start - recent_start :], best], axis=0)
            return position + 1, recent, start, chosen

        scalar = tf.TensorShape([])
        _, _, _, chosen = tf.while_loop(
            lambda position, *_: position <= tf.cast(longest, tf.int32),
            step,
            (1, tf.zeros([offsets[1]], tf.float64), tf.constant(0, tf.int64), _rows([None])),
            shape_invariants=(scalar, tf.TensorShape([None]), scalar, scalar),
        )
        chosen = chosen.concat()  # the best edge to each node after those of position 0
        # Follow the edges back from the last nodes, in steps of 1, 2, 4, ...
        back = tf.concat([tf.range(offsets[1]), tf.gather(sources, chosen)], axis=0)  # [N]
        last = tf.gather(offsets, lengths) + rank
        on_way = tf.scatter_nd(last[:, tf.newaxis], tf.ones_like(last), [count])

        def follow(reach, back, on_way):
            on_way = tf.maximum(on_way, tf.math.unsorted_segment_max(on_way, back, count))
            return reach * 2, tf.gather(back, back), on_way

        _, _, on_way = tf.while_loop(
            lambda reach, *_: reach <= longest, follow, (tf.constant(1, tf.int64), back, on_way)
        )
        return tf.gather(order, tf.boolean_mask(chosen, on_way[offsets[1] :] > 0))


def _rows(shape: list) -> tf.TensorArray:
    """Returns an array for int64 tensors of a shape, of which the first dimension differs."""
    return tf.TensorArray(tf.int64, 0, dynamic_size=True, infer_shape=False, element_shape=shape)


def _trie(pieces: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the trie of the pieces.

    Node 0 is the root, and node i + 1 is what the i-th key leads to: a node and a code point after
    it, in one sorted int64. The second array is the id of the piece that ends at a node, or -1.
    """
    ids = {piece: index for index, piece in enumerate(pieces)}  # of a repeated one, the last
    texts = [text for text in ids if text]
    lengths = np.array([len(text) for text in texts])
    flat = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    nodes = np.zeros(len(texts), np.int64)  # where each text has arrived
    keys, size = [], 1
    for place in range(lengths.max()):
        left = np.where(lengths > place)[0]
        codes = nodes[left] << CODE_POINT_BITS | flat[begins[left] + place]
        level, index = np.unique(codes, return_inverse=True)
        nodes[left] = size + index
        keys.append(level)
        size += len(level)
    piece_of_node = np.full(size, -1, np.int32)
    piece_of_node[nodes] = [ids[text] for text in texts]
    return np.concatenate([*keys, [2**62]]), piece_of_node
