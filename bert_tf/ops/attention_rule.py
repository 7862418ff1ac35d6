"""Rules of attention: which tokens a token attends to, and what is added to the scores.

Every kind of attention is a field of `AttentionRule`. For a new kind, add a field, its
formula in `sees` or `score_bias` (the reference and padded batches use them) and, for the native
ops, an entry in `attributes`.

Glossary: `R` tokens of all sequences, `N` heads, `M` the largest distance of query and key with a
bias of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from bert_tf.errors import UserError, require

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
        distance_bias: `[N, 2 M + 1]`: to the score of a query at place i and a key at place j,
            `distance_bias[:, M + clip(i - j, -M, M)]` is added. None means nothing.

    Raises:
        UserError: If `window_size` or `num_global_tokens` is negative, there are global tokens
            without a window, or `attended_rows` is combined with a window or a distance bias.

    Example:
        >>> rule = bert_tf.ops.AttentionRule(causal=True)
        >>> rule.sees(tf.constant([[0], [1]]), tf.constant([[0, 1]])).numpy()
        array([[ True, False],
               [ True,  True]])

    Reference: Beltagy et al. 2020 (arXiv 2004.05150) for windows; Dong et al. 2019 (arXiv
    1905.03197), figure 1, for prefixes; Raffel et al. 2020 (arXiv 1910.10683), section 2.1, for
    biases of distances.
    """

    causal: bool = False
    attended_rows: tf.Tensor | None = None
    window_size: int | None = None
    num_global_tokens: int = 0
    distance_bias: tf.Tensor | None = None

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
        is_full = window is None and self.distance_bias is None
        if self.attended_rows is not None and not is_full:
            rule = "must be None with a window or a distance bias"
            require(False, rule, UserError, attended_rows=self.attended_rows.shape, **sizes)

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
        if self.causal:
            sees &= key <= query
        if is_attended is not None:
            sees = sees | is_attended if self.causal else sees & is_attended
        return sees

    def score_bias(self, query: tf.Tensor, key: tf.Tensor) -> tf.Tensor | None:
        """Returns what is added to scores, `[..., N, T, T]`, or None; arguments as in `sees`."""
        if self.distance_bias is None:
            return None
        distances = query - key  # [..., T, T]
        reach = tf.shape(self.distance_bias, out_type=distances.dtype)[1] // 2  # M
        places = tf.clip_by_value(distances, -reach, reach) + reach
        biases = tf.gather(self.distance_bias, places, axis=1)  # [N, ..., T, T]
        return biases if distances.shape.rank == 2 else tf.transpose(biases, [1, 0, 2, 3])

    @functools.cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the native ops."""
        return {
            "causal": bool(self.causal),
            "window_size": _NO_WINDOW if self.window_size is None else self.window_size,
            "num_global_tokens": self.num_global_tokens,
        }


EVERY_TOKEN = AttentionRule()  # of the sequence
