"""Draws the masks of masked language modeling, in the graph.

Glossary: `B` rows, `T` sequence length, `P` masked positions, `W` words of a row (at most `T`),
`K` maximum number of words of a span, `V` vocabulary size.

The random bits of a row depend only on `seed` and on the row's stream, so an example has the same
masks in every batch.

References: google-research/bert create_pretraining_data.py; Joshi et al., "SpanBERT", arXiv
1907.10529; Lan et al., "ALBERT", arXiv 1909.11942.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import check_limits, require
from bert_tf.ops.philox import philox_uniform_bits_streams

MASKINGS = ("token", "whole_word", "span")
MASKED_SHARE = 0.8  # Devlin et al. 2019, section 3.1: of the rest, half stay and half are random
KEPT_SHARE = 0.1


def _geometric(p: float, longest: int) -> tuple[float, ...]:
    weights = [p * (1 - p) ** index for index in range(longest)]
    return tuple(weight / sum(weights) for weight in weights)


# Probabilities of a span of 1, 2, ... words.
SPANBERT_SPANS = _geometric(0.2, 10)  # arXiv 1907.10529, section 3.1: mean 3.8
ALBERT_NGRAMS = (6 / 11, 3 / 11, 2 / 11)  # arXiv 1909.11942, section 4.1: proportional to 1/n

_DRAWS = 4  # per token: its random order, what replaces it, the random token, the span length
_ORDER, _ACTION, _TOKEN, _SPAN = range(_DRAWS)
_ALL_BITS = 2**32


class MaskedTokens(NamedTuple):
    """A batch with its masks. Unused places are 0."""

    token_ids: tf.Tensor  # the input of the model, int32 [B, T]
    masked_positions: tf.Tensor  # int32 [B, P], in increasing order
    masked_ids: tf.Tensor  # the original tokens there, int32 [B, P]
    masked_weights: tf.Tensor  # float32 [B, P], 1 at used places


def num_to_predict(lengths, masked_lm_prob: float, max_predictions: int):
    """Returns how many tokens are masked in sequences of these lengths, int32 like `lengths`.

    Matches google-research/bert: rounds half to even, and masks at least one token.

    Args:
        lengths: Lengths including `[CLS]` and `[SEP]`, of any shape: an array or a Tensor.
        masked_lm_prob: The fraction of tokens to mask.
        max_predictions: The maximum number of masked tokens.
    """
    if tf.is_tensor(lengths):
        rounded = tf.cast(tf.round(tf.cast(lengths, tf.float64) * masked_lm_prob), tf.int32)
        return tf.clip_by_value(rounded, 1, max_predictions)
    rounded = np.rint(np.asarray(lengths) * masked_lm_prob)
    return np.clip(rounded, 1, max_predictions).astype(np.int32)


def mask_tokens(
    token_ids: tf.Tensor,
    maskable: tf.Tensor,
    lengths: tf.Tensor,
    streams: tf.Tensor,
    *,
    seed: int,
    mask_token_id: int,
    vocab_size: int,
    max_predictions: int,
    masked_lm_prob: float = 0.15,
    masking: str = "token",
    word_starts: tf.Tensor | None = None,
    span_probabilities: Sequence[float] = SPANBERT_SPANS,
) -> MaskedTokens:
    """Masks tokens of each row.

    80 % of the chosen tokens (for "span", of the spans) become `[MASK]`, 10 % stay and 10 % become
    random tokens of the whole vocabulary.

    Args:
        token_ids: int32 `[B, T]`.
        maskable: bool `[B, T]`, False at special tokens and padding.
        lengths: The number of tokens of each row, special ones included, int `[B]`.
        streams: The number of each row's random stream, int64 `[B]`. Another one, other masks.
        seed: The random seed.
        mask_token_id: The id of `[MASK]`.
        vocab_size, max_predictions: `V` and `P`.
        masked_lm_prob: The fraction of tokens to mask.
        masking: "token"; "whole_word": words in random order that do not exceed the number of
            masked tokens; "span": runs of whole words, which end where that number is reached,
            where a segment ends or where another span begins.
        word_starts: bool `[B, T]`, True where a word starts. Required for "whole_word" and "span".
            The first token after a special token always starts a word.
        span_probabilities: The probabilities of spans of 1, 2, ... words: `SPANBERT_SPANS` or
            `ALBERT_NGRAMS`.

    Returns:
        The `MaskedTokens`.

    Raises:
        ConfigError: If an argument has an invalid value.

    Example:
        >>> masked = mask_tokens(
        ...     tf.constant([[2, 7, 8, 9, 3, 0]]),
        ...     maskable=tf.constant([[False, True, True, True, False, False]]),
        ...     lengths=tf.constant([5]),
        ...     streams=tf.constant([0], tf.int64),
        ...     seed=1,
        ...     mask_token_id=4,
        ...     vocab_size=10,
        ...     max_predictions=2,
        ... )
        >>> masked.masked_weights
        <tf.Tensor: shape=(1, 2), dtype=float32, numpy=array([[1., 0.]], dtype=float32)>
    """
    check_masking(masking, masked_lm_prob, max_predictions, span_probabilities)
    has_id, rule = 0 <= mask_token_id < vocab_size, f"must be in [0, {vocab_size})"
    require(has_id, rule, mask_token_id=mask_token_id, vocab_size=vocab_size)
    has_words = masking == "token" or word_starts is not None
    require(has_words, f"must be given with {masking=}", word_starts=word_starts)
    shape = tf.shape(token_ids)
    columns = tf.range(shape[1])[tf.newaxis, :] + tf.zeros_like(token_ids)  # [B, T]
    # The four draws of a token are adjacent, so that a draw does not depend on T.
    bits = philox_uniform_bits_streams(seed, streams, shape[1] * _DRAWS)
    bits = tf.cast(tf.reshape(bits, [shape[0], shape[1], _DRAWS]), tf.int64)
    budget = num_to_predict(lengths, masked_lm_prob, max_predictions)
    if masking == "token":
        chosen = _choose_tokens(bits[:, :, _ORDER], maskable, budget)
        deciding = columns
    else:
        first = maskable & ~tf.pad(maskable, [[0, 0], [1, 0]])[:, :-1]
        probabilities = (1.0,) if masking == "whole_word" else span_probabilities
        starts = maskable & (word_starts | first)
        anchors = _choose_spans(bits, maskable, starts, budget, probabilities)
        chosen = anchors >= 0
        # The draw of its first token is used for the whole span.
        deciding = tf.where(chosen, anchors, columns) if masking == "span" else columns
    action = tf.gather(bits[:, :, _ACTION], deciding, batch_dims=1)  # [B, T]
    random_ids = tf.cast(tf.bitwise.right_shift(bits[:, :, _TOKEN] * vocab_size, 32), tf.int32)
    kept_below = round((MASKED_SHARE + KEPT_SHARE) * _ALL_BITS)
    shown = tf.where(action < kept_below, token_ids, random_ids)
    shown = tf.where(action < round(MASKED_SHARE * _ALL_BITS), mask_token_id, shown)

    # The chosen columns in increasing order: [B, T] -> [B, P]
    positions = tf.sort(tf.where(chosen, columns, shape[1]), axis=1)[:, :max_predictions]
    missing = [[0, 0], [0, max_predictions - tf.shape(positions)[1]]]
    positions = tf.pad(positions, missing, constant_values=np.iinfo(np.int32).max)
    used = positions < shape[1]
    positions = tf.where(used, positions, 0)
    ids = tf.where(used, tf.gather(token_ids, positions, batch_dims=1), 0)
    shape = [token_ids.shape[0], max_predictions]
    fields = (positions, ids, tf.cast(used, tf.float32))
    shown = tf.where(chosen, shown, token_ids)
    return MaskedTokens(shown, *(tf.ensure_shape(field, shape) for field in fields))


def check_masking(
    masking: str, masked_lm_prob: float, max_predictions: int, span_probabilities: Sequence[float]
) -> None:
    """Raises `ConfigError` if an option of `mask_tokens` has an invalid value."""
    require(masking in MASKINGS, f"must be one of {MASKINGS}", masking=masking)
    require(0 < masked_lm_prob < 1, "must be in (0, 1)", masked_lm_prob=masked_lm_prob)
    check_limits(max_predictions_per_seq=max_predictions)
    shares = tuple(span_probabilities)
    are_probabilities = shares and min(shares) >= 0 and np.isclose(sum(shares), 1)
    rule = "must be probabilities of spans of 1, 2, ... words and sum to 1"
    require(are_probabilities, rule, span_probabilities=shares)


def _choose_tokens(order, maskable, budget) -> tf.Tensor:
    """Returns bool `[B, T]`: the first `budget` maskable tokens in random order."""
    places = tf.argsort(tf.where(maskable, order, _ALL_BITS), axis=1, stable=True)
    ranks = tf.argsort(places, axis=1)  # the inverse permutation
    return maskable & (ranks < budget[:, tf.newaxis])


def _choose_spans(bits, maskable, starts, budget, probabilities) -> tf.Tensor:
    """Returns int32 `[B, T]`: the first token of the span that a token is chosen in, or -1."""
    shape = tf.shape(maskable)
    longest = len(probabilities)
    columns = tf.range(shape[1])[tf.newaxis, :] + tf.zeros(shape, tf.int32)
    ordinals = tf.cumsum(tf.cast(starts, tf.int32), axis=1)
    words, num_words = ordinals - 1, ordinals[:, -1]  # [B, T], the word of a token; [B]
    slots = tf.range(shape[0])[:, tf.newaxis] * shape[1] + words
    slots, ones = tf.where(maskable, slots, -1), tf.cast(maskable, tf.int32)
    sizes = tf.math.unsorted_segment_sum(ones, slots, shape[0] * shape[1])
    sizes = tf.reshape(sizes, shape)  # [B, W], tokens of a word
    word_starts = tf.sort(tf.where(starts, columns, shape[1]), axis=1)  # [B, W]
    follows = tf.pad(word_starts[:, 1:] == word_starts[:, :-1] + sizes[:, :-1], [[0, 0], [1, 0]])
    order = tf.argsort(tf.where(starts, bits[:, :, _ORDER], _ALL_BITS), axis=1, stable=True)
    # The words of a row in random order, and the number of words of a span that starts there.
    thresholds = np.round(np.cumsum(probabilities)[:-1] * _ALL_BITS).astype(np.int64)
    longer = bits[:, :, _SPAN, tf.newaxis] >= thresholds
    wanted = 1 + tf.reduce_sum(tf.cast(longer, tf.int32), axis=-1)  # [B, T]
    candidates = tf.transpose(tf.gather(words, order, batch_dims=1))  # [W, B]
    wanted = tf.transpose(tf.gather(wanted, order, batch_dims=1))  # [W, B]
    order = tf.transpose(order)  # [W, B]
    sizes = tf.pad(sizes, [[0, 0], [0, longest]])  # [B, W + K]: spans may extend past the end
    follows = tf.pad(follows, [[0, 0], [0, longest]])
    word_numbers = tf.range(shape[1] + longest)[tf.newaxis, :]
    ahead = tf.range(longest)[tf.newaxis, :]  # [1, K]

    def unfinished(step, left, anchors):
        return tf.reduce_any((step < num_words) & (left > 0))

    def take(step, left, anchors):
        word = candidates[step][:, tf.newaxis]  # [B, 1]
        window = tf.maximum(word, 0) + ahead  # [B, K]
        size = tf.gather(sizes, window, batch_dims=1)
        free = tf.gather(anchors, window, batch_dims=1) < 0
        joined = tf.gather(follows, window, batch_dims=1) | (ahead == 0)
        fits = tf.cumsum(size, axis=1) <= left[:, tf.newaxis]
        inside = (ahead < wanted[step][:, tf.newaxis]) & (step < num_words)[:, tf.newaxis]
        usable = free & joined & fits & inside & (size > 0)
        taken = tf.math.cumprod(tf.cast(usable, tf.int32), axis=1)
        end = word + tf.reduce_sum(taken, axis=1, keepdims=True)
        in_span = (word_numbers >= word) & (word_numbers < end)  # [B, W + K]
        anchors = tf.where(in_span, order[step][:, tf.newaxis], anchors)
        return step + 1, left - tf.reduce_sum(taken * size, axis=1), anchors

    state = (tf.constant(0), budget, tf.fill([shape[0], shape[1] + longest], -1))
    shapes = (tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None, None]))
    _, _, anchors = tf.while_loop(unfinished, take, state, shapes, maximum_iterations=shape[1])
    chosen = tf.gather(anchors, tf.maximum(words, 0), batch_dims=1)  # [B, T]
    return tf.where(maskable, chosen, -1)
