"""Rules of attention: which tokens a token attends to, and what is added to the scores.

Every kind of attention is a field of `AttentionRule`. For a new kind, add a field, its
formula in `sees` or `score_bias` (the reference and padded batches use them) and, for the native
ops, an entry in `attributes`. The reference implementations compute the attention of packed rows as
that of a padded batch (`PaddedAttention`).

Glossary: `B` sequences, `T` length of the longest sequence, `R` tokens of all sequences, `N` heads,
`D` head size, `M` the largest distance of query and key with a bias of its own; `Tq` and `Tk` are
the `T` of queries and keys.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require
from bert_tf.ops.philox import dropout_scale, dropout_threshold, philox_uniform_bits_streams

_NO_WINDOW = -1  # the native ops' window_size for None


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionRule:
    """Says what the tokens of a sequence attend to. By default, each token attends to all of them.

    A query at place i of its sequence attends to the key at place j if (not causal or j <= i) and
    (there is no window, or |i - j| <= window_size, or i < num_global_tokens, or
    j < num_global_tokens).

    Args:
        causal: Whether a token attends only to itself and to earlier tokens.
        attended_rows: bool `[R]`, True for the tokens that all tokens of their sequence attend to;
            no token attends to the others. With `causal`, these tokens are a prefix of each
            sequence; each other token is attended to by itself and by later tokens. None means all
            tokens, or with `causal` none.
        window_size: How many tokens on either side a token attends to. None means all.
        num_global_tokens: The number of first tokens of each sequence for which the window does
            not apply: they attend to all tokens, and all tokens attend to them.
        attended_blocks: bool `[B, n, n]` for B sequences: whether the tokens of block i of a
            sequence attend to those of its block j. n is at least the number of blocks of the
            longest sequence. None means all blocks.
        block_size: The number of tokens of a block. The last block of a sequence may have fewer.
        distance_bias: `[N, 2 M + 1]`: to the score of a query at place i and a key at place j,
            `distance_bias[:, M + clip(i - j, -M, M)]` is added. None means nothing.
        distance_vectors: `[S, 2, N, D]`, a query and a key for each of S kinds of distances
            (disentangled attention): the score of query q and key k at a distance of kind s is
            `(q . k + q . key[s] + query[s] . k) / sqrt(3 D)`.
        distance_rows: int32 `[2 M + 1]`, the kind of distance `clip(i - j, -M, M)`, with
            `distance_vectors`.
        rotation: float32 `[P, S]`, S even and at most D, P at least the length of the longest
            sequence: the cosines and then the sines of S / 2 angles for each place. Column c of a
            query or key and column c + S / 2 are turned by angle c of its place (`rotated`); other
            columns are kept. On a GPU and under XLA, the lengths may not be known before the
            computation; then places from P on give NaN instead of an error. No gradient is taken
            with respect to it. None turns nothing.

    Raises:
        UserError: If `window_size` or `num_global_tokens` is negative, there are global tokens
            without a window, `attended_rows` is combined with a window or a distance bias, or
            `attended_blocks` with anything but a rotation.

    Example:
        >>> rule = bert_tf.ops.AttentionRule(causal=True)
        >>> rule.sees(tf.constant([[0], [1]]), tf.constant([[0, 1]])).numpy()
        array([[ True, False],
               [ True,  True]])

    Reference: Beltagy et al. 2020 (arXiv 2004.05150) for windows; Zaheer et al. 2020 (arXiv
    2007.14062) for blocks; Dong et al. 2019 (arXiv 1905.03197), figure 1, for prefixes; Raffel et
    al. 2020 (arXiv 1910.10683), section 2.1, for biases of distances; He et al. 2021 (arXiv
    2006.03654), equation 4, for disentangled attention; Su et al. 2021 (arXiv 2104.09864), section
    3.4.2, for rotations.
    """

    causal: bool = False
    attended_rows: tf.Tensor | None = None
    window_size: int | None = None
    num_global_tokens: int = 0
    attended_blocks: tf.Tensor | None = None
    block_size: int = 64
    distance_bias: tf.Tensor | None = None
    distance_vectors: tf.Tensor | None = None
    distance_rows: np.ndarray | tf.Tensor | None = None
    rotation: tf.Tensor | None = None

    def __post_init__(self):
        window, num_global = self.window_size, self.num_global_tokens
        sizes = {"window_size": window, "num_global_tokens": num_global}
        if window is None and num_global:
            rule = "must be given with `num_global_tokens`: without a window, all tokens are global"
            require(False, rule, UserError, **sizes)
        if window is not None and window < 0:
            require(False, "must be at least 0, or None for no window", UserError, **sizes)
        if num_global < 0:
            require(False, "must be at least 0", UserError, num_global_tokens=num_global)
        is_full = window is None and self.distance_bias is None and self.distance_vectors is None
        if self.attended_rows is not None and not is_full:
            rule = "must be None with a window or a distance bias"
            require(False, rule, UserError, attended_rows=self.attended_rows.shape, **sizes)
        if self.attended_blocks is not None:
            is_alone = is_full and not self.causal and self.attended_rows is None
            rule = "must be None with a window, a distance bias, `causal` or `attended_rows`"
            blocks = self.attended_blocks.shape
            require(is_alone, rule, UserError, attended_blocks=blocks, causal=self.causal, **sizes)

    def sees(self, query: tf.Tensor, key: tf.Tensor, is_attended: tf.Tensor | None = None):
        """Returns whether queries attend to keys of the same sequence.

        Args:
            query: int `[..., T, 1]`, the places of the queries in their sequences.
            key: int `[..., 1, T]`, the places of the keys.
            is_attended: bool `[..., 1, T]`, `attended_rows` of the keys.

        Returns:
            bool `[..., T, T]`, or a constant that can be broadcast to it.
        """
        sees = tf.constant(True)
        if self.window_size is not None:
            sees = tf.abs(query - key) <= self.window_size
            sees |= (query < self.num_global_tokens) | (key < self.num_global_tokens)
        if self.attended_blocks is not None:
            sees = self._sees_blocks(query, key)
        if self.causal:
            sees &= key <= query
        if is_attended is not None:
            sees = sees | is_attended if self.causal else sees & is_attended
        return sees

    def _sees_blocks(self, query, key):
        """Returns whether the blocks of queries attend to those of keys; arguments as in `sees`."""
        shape = tf.stack([tf.shape(self.attended_blocks)[0], tf.shape(key)[-1]])  # B and T

        def blocks(places):  # [T], [T, 1], [B, 1, T, 1] or [B, 1, 1, T] -> [B, T]
            places = tf.reshape(tf.maximum(places, 0), [-1, shape[1]])  # -1 is padding
            return tf.broadcast_to(places // self.block_size, shape)

        rows = tf.gather(self.attended_blocks, blocks(query), axis=1, batch_dims=1)  # [B, T, n]
        sees = tf.gather(rows, blocks(key), axis=2, batch_dims=1)  # [B, T, T]
        return sees[:, tf.newaxis] if query.shape.rank == 4 else sees

    def score_bias(self, query: tf.Tensor, key: tf.Tensor) -> tf.Tensor | None:
        """Returns what is added to scores, `[..., N, T, T]`, or None; arguments as in `sees`."""
        if self.distance_bias is None:
            return None
        distances = query - key  # [..., T, T]
        reach = tf.shape(self.distance_bias, out_type=distances.dtype)[1] // 2  # M
        places = tf.clip_by_value(distances, -reach, reach) + reach
        biases = tf.gather(self.distance_bias, places, axis=1)  # [N, ..., T, T]
        return biases if distances.shape.rank == 2 else tf.transpose(biases, [1, 0, 2, 3])

    def scores(
        self, queries: tf.Tensor, keys: tf.Tensor, query: tf.Tensor, key: tf.Tensor
    ) -> tf.Tensor:
        """Returns the scores of a padded batch before any mask, float32 `[B, N, T, T]`.

        Args:
            queries, keys: `[B, N, T, D]`, turned if there is a rotation.
            query, key: Their places in the sequences, as in `sees`.
        """
        scores, factors = tf.matmul(queries, keys, transpose_b=True), 1
        if self.distance_vectors is not None:
            scores += self._scores_of_distances(queries, keys, query - key)
            factors = 3
        scores = tf.cast(scores, tf.float32) * _inverse_root(factors, queries)
        bias = self.score_bias(query, key)
        return scores if bias is None else scores + bias

    def _scores_of_distances(self, queries, keys, distances):
        """Returns q . key[s] + query[s] . k for each query and key, `[B, N, T, T]`."""
        reach, shape = self.distance_rows.shape[0] // 2, tf.shape(queries)  # M, [B, N, T, D]
        places = tf.clip_by_value(distances, -reach, reach) + reach
        kinds = tf.gather(self.distance_rows, places)  # [T, T] or [B, T, T]
        kinds = tf.broadcast_to(kinds, [shape[0], shape[2], shape[2]])
        vectors = tf.ensure_shape(self.distance_vectors, [None, 2, None, None])
        vectors = tf.cast(vectors, queries.dtype)
        of_query, of_key = tf.unstack(tf.transpose(vectors, [1, 2, 3, 0]))  # each [N, D, S]

        def chosen(products, kinds):  # [B, N, T, S], [B, T, T] -> [B, N, T, T]
            products = tf.transpose(products, [0, 2, 1, 3])
            return tf.transpose(tf.gather(products, kinds, axis=3, batch_dims=2), [0, 2, 1, 3])

        by_query = chosen(tf.matmul(queries, of_key), kinds)
        by_key = chosen(tf.matmul(keys, of_query), tf.transpose(kinds, [0, 2, 1]))
        return by_query + tf.transpose(by_key, [0, 1, 3, 2])

    def rotate_packed(
        self, qkv: tf.Tensor, row_splits: tf.Tensor
    ) -> tuple[tf.Tensor, AttentionRule]:
        """Returns `[R, 3, N, D]` with turned queries and keys, and the rule without `rotation`."""
        if self.rotation is None:
            return qkv, self
        qkv = tf.ensure_shape(qkv, [None, 3, None, None])
        row_splits = tf.ensure_shape(row_splits, [None])
        rows = tf.range(tf.shape(qkv, out_type=row_splits.dtype)[0])  # [R]
        sequences = tf.searchsorted(row_splits[1:], rows, side="right")
        places = rows - tf.gather(row_splits, sequences)
        of_places = _rows_of_places(self.rotation, places)[:, tf.newaxis, tf.newaxis]
        turned = rotated(qkv[:, :2], of_places)  # [R, 2, N, D]
        return tf.concat([turned, qkv[:, 2:]], axis=1), dataclasses.replace(self, rotation=None)

    @functools.cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the native ops."""
        return {
            "causal": bool(self.causal),
            "window_size": _NO_WINDOW if self.window_size is None else self.window_size,
            "num_global_tokens": self.num_global_tokens,
        }


EVERY_TOKEN = AttentionRule()  # of the sequence


def rotated(vectors: tf.Tensor, rotation: tf.Tensor) -> tf.Tensor:
    """Turns pairs of columns of queries or keys, in float32: `[..., D]` -> `[..., D]`.

    Args:
        vectors: `[..., D]`, of any float dtype.
        rotation: float32, broadcastable to `[..., S]`: the row of `AttentionRule.rotation` of each
            vector's place.

    Example:
        >>> quarter = tf.constant([0.0, 1.0])  # the cosine and the sine
        >>> bert_tf.ops.attention_rule.rotated(tf.constant([2.0, 0.0, 7.0]), quarter).numpy()
        array([0., 2., 7.], dtype=float32)
    """
    half = rotation.shape[-1] // 2
    cosine, sine = rotation[..., :half], rotation[..., half:]
    values = tf.cast(vectors, tf.float32)
    first, second, others = tf.split(values, [half, half, -1], axis=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine, others]
    return tf.cast(tf.concat(turned, axis=-1), vectors.dtype)


def _inverse_root(factor: int, vectors: tf.Tensor):
    """Returns 1 / sqrt(factor D) for `[..., D]`."""
    size = vectors.shape[-1]
    if size is None:
        return tf.math.rsqrt(tf.cast(factor * tf.shape(vectors)[-1], tf.float32))
    return 1.0 / math.sqrt(factor * size)


def _rows_of_places(rotation: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Returns the rows of a rotation for int places, which it must have: `[..., S]`.

    XLA leaves this check out. There, the rows of other places are NaN.
    """
    count = tf.shape(rotation, out_type=places.dtype)[0]
    check = tf.debugging.assert_less(
        places, count, "`rotation` must have a row for each place of a sequence."
    )
    with tf.control_dependencies([] if check is None else [check]):
        is_there = (places < count)[..., tf.newaxis]
        return tf.where(is_there, tf.gather(rotation, places), float("nan"))


class PaddedRows:
    """The places of packed rows in a padded batch.

    Args:
        packed: `[R, ..., N, D]`, the rows, of known rank.
        row_splits: `[B + 1]`. They are checked when the op runs.
        name: The name of the argument with the row splits, for errors.
        of: The name of the argument with the rows.

    Attributes:
        lengths: int64 `[B]`.
        longest: int64 scalar, T.
        rows: int64 `[B, T]`, the packed rows; 0 for padding.
        is_token: bool `[B, T]`.
    """

    def __init__(self, packed: tf.Tensor, row_splits: tf.Tensor, name: str, of: str):
        num_rows = tf.shape(packed, out_type=tf.int64)[0]  # R
        row_splits = tf.cast(row_splits, tf.int64)
        checks = [
            tf.debugging.assert_equal(
                row_splits[0], tf.constant(0, tf.int64), f"`{name}` must begin with 0."
            ),
            tf.debugging.assert_non_negative(
                row_splits[1:] - row_splits[:-1], f"`{name}` must never decrease."
            ),
            tf.debugging.assert_equal(
                row_splits[-1], num_rows, f"`{name}` must end with the number of rows of `{of}`."
            ),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):
            self._row_splits = tf.identity(row_splits)
        self._packed = packed
        starts = self._row_splits[:-1]  # [B]
        self.lengths = self._row_splits[1:] - starts
        self.longest = tf.reduce_max(tf.concat([self.lengths, [0]], axis=0))
        positions = tf.range(self.longest)  # [T]
        self.is_token = positions < self.lengths[:, tf.newaxis]
        self.rows = tf.where(self.is_token, starts[:, tf.newaxis] + positions, 0)

    def padded(self) -> tf.Tensor:
        """Returns the rows as `[B, T, ...]`, float32, with zeros for padding."""
        padded = tf.cast(tf.gather(self._packed, self.rows), tf.float32)  # [B, T, ...]
        is_token = self.is_token[(..., *[tf.newaxis] * (self._packed.shape.rank - 1))]
        return tf.where(is_token, padded, 0.0)

    def pack(self, padded: tf.Tensor) -> tf.Tensor:
        """Packs `[B, T, N, D]` -> `[R, N, D]` with the dtype of the rows."""
        # Row r is in the first sequence that ends after r.
        flat = tf.reshape(padded, tf.concat([[-1], tf.shape(padded)[2:]], axis=0))  # [B T, N, D]
        row = tf.range(tf.shape(self._packed, out_type=tf.int64)[0])
        sequence = tf.searchsorted(self._row_splits[1:], row, side="right", out_type=tf.int64)
        place = sequence * self.longest + row - tf.gather(self._row_splits, sequence)
        output = tf.ensure_shape(
            tf.gather(flat, place), [self._packed.shape[0], *self._packed.shape[-2:]]
        )
        return tf.cast(output, self._packed.dtype)


@dataclasses.dataclass(frozen=True)
class PaddedAttention:
    """The queries, keys and values of a padded batch, float32, and who attends to whom.

    Attributes:
        queries, keys: The places of the packed queries, and of the packed keys and values. One
            object for both is self-attention.
        query: `[B, Tq, N, D]`, zeros for padding.
        key, value: `[B, Tk, N, D]`, zeros for padding.
        rule: The `AttentionRule`.
    """

    queries: PaddedRows
    keys: PaddedRows
    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    rule: AttentionRule

    @classmethod
    def of_self(cls, qkv, row_splits, rule: AttentionRule) -> PaddedAttention:
        """Pads the checked arguments of `varlen_attention`."""
        qkv = tf.ensure_shape(qkv, [None, 3, None, None])
        rows = PaddedRows(qkv, row_splits, "row_splits", "qkv")
        parts = tf.unstack(rows.padded(), num=3, axis=2)  # each [B, T, N, D]
        if rule.rotation is not None:
            of_places = _rows_of_places(rule.rotation, tf.range(rows.longest))[:, tf.newaxis]
            parts[:2] = [rotated(part, of_places) for part in parts[:2]]
        if rule.distance_bias is not None:
            bias = tf.cast(rule.distance_bias, tf.float32)
            rule = dataclasses.replace(rule, distance_bias=bias)
        return cls(rows, rows, *parts, rule)

    @property
    def score_scale(self):
        """1 / sqrt(D)."""
        return _inverse_root(1, self.query)

    @functools.cached_property
    def _positions(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The positions of queries and keys: int64 `[Tq, 1]` and `[Tk]`.

        In cross-attention, queries and keys are aligned at their ends: those of the queries are
        `[B, Tq, 1]`, and in a sequence with more queries than keys, some are negative.
        """
        query, key = tf.range(self.queries.longest), tf.range(self.keys.longest)
        if self.queries is not self.keys:
            query += (self.keys.lengths - self.queries.lengths)[:, tf.newaxis]
        return query[..., tf.newaxis], key

    @functools.cached_property
    def attends(self) -> tf.Tensor:
        """Whether it is a query, and not padding, that attends to any key: bool `[B, Tq]`."""
        if self.queries is self.keys:
            return self.queries.is_token
        attends = self.queries.is_token & (self.keys.lengths > 0)[:, tf.newaxis]
        return attends & (self._positions[0][..., 0] >= 0) if self.rule.causal else attends

    @functools.cached_property
    def sees(self) -> tf.Tensor:
        """Whether the query (row) attends to the key (column): bool `[B, 1, Tq, Tk]`."""
        sees = self.rule.sees(*self._positions)  # [Tq, Tk] or [B, Tq, Tk]
        sees &= self.keys.is_token[:, tf.newaxis, :]  # [B, 1 or Tq, Tk]
        # Any other row attends to everything, so that its softmax is finite.
        sees |= ~self.attends[:, :, tf.newaxis]
        return sees[:, tf.newaxis]

    def add_bias(self, scores: tf.Tensor) -> tf.Tensor:
        """Adds what the rule adds to scores of self-attention, `[B, N, T, T]`."""
        bias = self.rule.score_bias(*self._positions)
        return scores if bias is None else scores + bias

    def attention(self, dropout_rate: float, seed, bfloat16_products: bool) -> tf.Tensor:
        """Returns the attention of the queries, `[Rq, N, D]`, in stock TensorFlow ops."""

        def factor(tensor):
            if not bfloat16_products:
                return tensor
            return tf.cast(tf.cast(tensor, tf.bfloat16), tf.float32)

        if self.rule.distance_vectors is None:
            query = factor(self.query) * self.score_scale
            scores = tf.einsum("bqnd,bknd->bnqk", query, factor(self.key))  # [B, N, Tq, Tk]
            scores = self.add_bias(scores)
        else:
            heads = [tf.transpose(factor(x), [0, 2, 1, 3]) for x in (self.query, self.key)]
            scores = self.rule.scores(*heads, *self._positions)  # [B, N, T, T]
        probabilities = tf.nn.softmax(tf.where(self.sees, scores, -math.inf))
        blocks = self.rule.attended_blocks
        if self.rule.causal or self.rule.window_size is not None or blocks is not None:
            # Even if the softmax of a row is NaN (its scores overflow), hidden keys have
            # probability 0.
            probabilities = tf.where(self.sees, probabilities, 0.0)

        if dropout_rate > 0.0:
            num_heads = tf.shape(self.query, out_type=tf.int64)[2]
            heads = tf.range(num_heads)[:, tf.newaxis]
            streams = self.queries.rows[:, tf.newaxis] * num_heads + heads  # [B, N, Tq]
            longest = tf.shape(scores, out_type=tf.int64)[-1]  # Tk
            bits = philox_uniform_bits_streams(seed, tf.reshape(streams, [-1]), longest)
            kept = bits >= tf.constant(dropout_threshold(dropout_rate), tf.uint32)  # [B N Tq, Tk]
            kept = tf.reshape(kept, tf.shape(probabilities))  # [B, N, Tq, Tk]
            zero_or_nan = 0.0 * tf.stop_gradient(tf.reduce_sum(probabilities, axis=-1))
            probabilities = tf.where(kept, probabilities * dropout_scale(dropout_rate), 0.0)

        probabilities, value = factor(probabilities), factor(self.value)
        output = tf.einsum("bnqk,bknd->bqnd", probabilities, value)  # [B, Tq, N, D]
        if dropout_rate > 0.0:  # a row whose softmax is NaN stays NaN, even if its NaN is dropped
            output += tf.transpose(zero_or_nan, [0, 2, 1])[..., tf.newaxis]
        if self.queries is not self.keys:
            output = tf.where(self.attends[:, :, tf.newaxis, tf.newaxis], output, 0.0)
        return self.queries.pack(output)
