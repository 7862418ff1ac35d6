"""Merges symbols into pieces by the ranks of pairs, for all words of a batch together.

In each round, the pairs of the lowest rank of each part are merged. Parts are independent: between
them nothing is ever merged.

Glossary: `S` symbols of all words, `P` pairs that are merged in a round.

References: Sennrich et al., arXiv 1508.07909; huggingface/tokenizers `bpe/word.rs`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError
from bert_tf.text import code_points
from bert_tf.text.code_points import SparseTable

_NO_RANK = np.int32(2**31 - 1)


class Merges:
    """Merges symbols, which are ids of pieces.

    Args:
        ids: The ids of the pieces.
        merges: Pairs of pieces in the order of their ranks.

    Raises:
        DataError: If a part or the result of a merge is not a piece.
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]]):
        try:
            parts = np.array([ids[part] for merge in merges for part in merge], np.int64)
            self._merged = np.array([ids[a + b] for a, b in merges], np.int32)
        except KeyError as error:
            raise DataError(
                "The vocabulary must contain the parts and results of all merges. Received: no "
                f"piece {error.args[0]!r:.200}."
            ) from None
        first, second = parts.reshape(-1, 2).T
        pairs, places = np.unique(code_points.pair(first, second)[::-1], return_index=True)
        ranks = len(merges) - 1 - places  # of a repeated pair, the last
        self._ranks = SparseTable(pairs, ranks, _NO_RANK)
        # Usually no merge has an earlier rank than those that make its parts. If one has, pairs
        # that appear later can come first.
        made_at = np.full(max(ids.values(), default=0) + 1, -1)
        made_at[self._merged] = np.arange(len(merges))
        made = np.maximum(made_at[first], made_at[second])
        self._in_rounds = bool(np.all(ranks > made[ranks]))

    def __call__(
        self, symbols: tf.Tensor, parts: tf.Tensor, places: tf.Tensor, done: tf.Tensor
    ) -> tf.Tensor:
        """Returns `done`, int32, with the id of each piece at the place of its first symbol.

        `symbols` (int32), `parts`, the number of the part of each, and `places` are `[S]`.
        """

        def merge(symbols, parts, places, done):
            chosen, merged, is_open = self._chosen(symbols, parts)
            symbols = tf.tensor_scatter_nd_update(symbols, chosen[:, tf.newaxis], merged)
            is_second = code_points.mask_of(chosen + 1, tf.size(symbols, tf.int64))
            # What has no more merges leaves the loop.
            ready = tf.where(~is_open)[:, 0]
            done = tf.tensor_scatter_nd_update(
                done, tf.gather(places, ready)[:, tf.newaxis], tf.gather(symbols, ready)
            )
            left = tf.where(is_open & ~is_second)[:, 0]
            return *(tf.gather(part, left) for part in (symbols, parts, places)), done

        vector = tf.TensorShape([None])
        _, _, _, done = tf.while_loop(
            lambda symbols, *_: tf.size(symbols) > 0,
            merge,
            (symbols, parts, places, done),
            shape_invariants=(vector,) * 4,
        )
        return done

    def _chosen(self, symbols, parts) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns which pairs to merge next, the results, and which symbols have merges."""
        parts = tf.cumsum(tf.cast(code_points.starts(parts), tf.int32)) - 1  # without gaps
        ranks = self._ranks(symbols[:-1], symbols[1:])
        ranks = tf.where(parts[1:] == parts[:-1], ranks, _NO_RANK)
        ranks = tf.concat([ranks, [_NO_RANK]], axis=0)  # of each symbol and the one after it
        lowest = tf.gather(tf.math.segment_min(ranks, parts), parts)
        is_open = lowest < _NO_RANK
        places = tf.where(is_open & (ranks == lowest))[:, 0]  # [P]
        # In a run of one symbol, merge only every second pair, because they overlap.
        runs = code_points.starts(places - tf.range(tf.size(places, tf.int64)))
        places = tf.boolean_mask(places, code_points.places_in_runs(runs) % 2 == 0)
        merged = tf.gather(tf.constant(self._merged), tf.gather(ranks, places))
        if not self._in_rounds:
            is_next = self._come_next(symbols, parts, places, merged, tf.gather(ranks, places))
            places, merged = (tf.boolean_mask(of, is_next) for of in (places, merged))
        return places, merged, is_open

    def _come_next(self, symbols, parts, places, merged, ranks) -> tf.Tensor:
        """Returns which of the pairs come before what other merges make of lower ranks, `[P]`.

        If a result and one of its neighbors have a lower rank, the pairs after it have to wait.
        """
        own, last = tf.gather(parts, places), tf.size(symbols, tf.int64) - 1
        before, after = tf.maximum(places - 1, 0), tf.minimum(places + 2, last)
        # The two symbols before may be a pair that is merged, into the same.
        is_merged = (tf.roll(places, 1, 0) == places - 2) & ~code_points.starts(own)
        left = tf.where(is_merged, merged, tf.gather(symbols, before))
        left_ranks = self._ranks(left, merged)
        right_ranks = self._ranks(merged, tf.gather(symbols, after))
        has_left = (places > 0) & (tf.gather(parts, before) == own)
        has_right = (places + 2 <= last) & (tf.gather(parts, after) == own)
        is_lower = has_left & (left_ranks < ranks) | has_right & (right_ranks < ranks)
        lower = tf.cumsum(tf.cast(is_lower, tf.int64), exclusive=True)
        is_first = code_points.starts(own)
        at_first = tf.boolean_mask(lower, is_first)
        return lower == tf.gather(at_first, tf.cumsum(tf.cast(is_first, tf.int64)) - 1)
