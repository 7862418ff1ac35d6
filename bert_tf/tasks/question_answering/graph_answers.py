"""Logits of windows to answers, in the graph: what `data.answer_selection` does on arrays.

Glossary: `B` questions, `S` windows, `T` tokens of the longest, `K` starts and ends looked at in a
window, `C` possible answers of all questions, `N` answers kept of a question.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.tasks.question_answering.graph_windows import GraphWindows
from bert_tf.text.text_slices import TextSlices

_MISSING = tf.float64.min  # the score of a place that holds no answer


class Candidates(NamedTuple):
    """Possible answers, the best of each question first and no text twice.

    Attributes:
        example: int64 `[C]`, which question; ascending.
        text: string `[C]`.
        start: int64 `[C]`, the first character.
        end: int64 `[C]`, the one behind the last.
        score: float64 `[C]`, the sum of both logits.
    """

    example: tf.Tensor
    text: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor


def graph_candidates(
    windows: GraphWindows,
    logits: tf.Tensor,
    contexts: tf.Tensor,
    char_starts: tf.RaggedTensor,
    char_ends: tf.RaggedTensor,
    n_best_size: int,
    max_answer_length: int,
) -> Candidates:
    """The possible answers of all questions.

    Args:
        windows: What `graph_windows` gave.
        logits: float32 `[S, 2, T]`: of the first token and of the last.
        contexts: string `[B]`.
        char_starts: Where the contexts' tokens begin, ragged int64 `[B, (tokens)]`.
        char_ends: Where they end.
        n_best_size: Starts and ends to look at in a window.
        max_answer_length: The most tokens of an answer.
    """
    kept = tf.minimum(n_best_size, tf.shape(logits)[2])
    # Matches google-research/bert: the best of all tokens, those of the question too.
    values, places = tf.math.top_k(logits, kept)  # [S, 2, K]
    length = places[:, 1, tf.newaxis, :] - places[:, 0, :, tf.newaxis] + 1  # [S, K, K]
    startable = tf.gather(windows.shows_best, places[:, 0], batch_dims=1)[:, :, tf.newaxis]
    endable = tf.gather(windows.is_context, places[:, 1], batch_dims=1)[:, tf.newaxis]
    possible = startable & endable & (length >= 1) & (length <= max_answer_length)
    found = tf.where(possible)  # [C, 3]: window, start's rank, end's rank
    window = found[:, 0]

    def of_end(values, end):  # [S, 2, K] -> [C]
        cells = tf.stack(
            [window, tf.fill(tf.shape(window), tf.cast(end, tf.int64)), found[:, 1 + end]], axis=1
        )
        return tf.gather_nd(values, cells)

    first_token = tf.gather(windows.first_token, window)

    def token_of(end):
        return first_token + tf.cast(of_end(places, end), tf.int64)

    example = tf.gather(windows.example, window)
    start = tf.gather(char_starts.values, token_of(0))
    end = tf.gather(char_ends.values, token_of(1))
    score = tf.cast(of_end(values, 0), tf.float64) + tf.cast(of_end(values, 1), tf.float64)
    text = TextSlices(contexts)(example, start, end)
    candidates = _best_first(example, text, start, end, score)
    # The first of every text, that is its best.
    keys = [tf.strings.as_string(candidates.example), candidates.text]
    keys = tf.strings.join(keys, separator=":")
    unique, group = tf.unique(keys)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(keys)), group, tf.size(unique))
    return Candidates(*(tf.gather(field, first) for field in candidates))


def null_scores(windows: GraphWindows, logits: tf.Tensor) -> tf.Tensor:
    """The score of no answer, float64 `[B]`: both logits at `[CLS]`, the least of the windows."""
    score = tf.reduce_sum(tf.cast(logits[:, :, 0], tf.float64), axis=1)  # [S, 2] -> [S]
    return tf.math.segment_min(score, windows.example)


def graph_answers(
    candidates: Candidates,
    null_score: tf.Tensor,
    n_best_size: int,
    null_score_diff_threshold: float | None,
) -> dict[str, tf.Tensor]:
    """The n best and the answer of each question.

    Args:
        candidates: What `graph_candidates` gave.
        null_score: float64 `[B]`, what `null_scores` gave.
        n_best_size: Candidates to keep.
        null_score_diff_threshold: None where every question has an answer.

    Returns:
        The outputs of the signature, each of `B` rows; see `QuestionAnsweringModule`.
    """
    rows = tf.size(null_score, tf.int64)
    may_be_null = null_score_diff_threshold is not None
    if may_be_null:
        empty = _empty(tf.range(rows), null_score)
    else:  # of a context without a token
        found = tf.math.bincount(
            tf.cast(candidates.example, tf.int32), minlength=tf.cast(rows, tf.int32)
        )
        example = tf.where(found == 0)[:, 0]
        empty = _empty(example, tf.zeros_like(example, tf.float64))
    # Of equal scores the candidates stay in front, as they stand in front here.
    candidates = _best_first(*(tf.concat(pair, axis=0) for pair in zip(candidates, empty)))
    rank = tf.RaggedTensor.from_value_rowids(candidates.score, candidates.example, rows)
    rank = tf.ragged.range(rank.row_lengths()).values  # [C]
    # No answer is kept even if others leave it no place.
    kept = tf.where((rank < n_best_size) | (candidates.text == ""))[:, 0]
    example = tf.gather(candidates.example, kept)

    def padded(values, default):  # [C] -> [B, N]
        ragged = tf.RaggedTensor.from_value_rowids(tf.gather(values, kept), example, rows)
        return ragged.to_tensor(default, shape=[None, n_best_size + may_be_null])

    text, score = padded(candidates.text, ""), padded(candidates.score, _MISSING)
    start, end = (
        tf.cast(padded(values, 0), tf.int32) for values in (candidates.start, candidates.end)
    )
    exists = score > _MISSING
    shares = tf.where(exists, tf.exp(score - score[:, :1]), 0.0)  # the first is the best
    probability = shares / tf.reduce_sum(shares, axis=1, keepdims=True)
    probability = tf.cast(probability, tf.float32)

    with_text = tf.where(text == "", _MISSING, score)
    best_score = tf.reduce_max(with_text, axis=1)  # [B]
    has_best = best_score > _MISSING
    difference = null_score - tf.where(has_best, best_score, 0.0)
    chosen = tf.argmax(with_text, axis=1)
    if may_be_null:
        null_at = tf.argmax(exists & (text == ""), axis=1)
        chosen = tf.where(has_best & (difference <= null_score_diff_threshold), chosen, null_at)

    def of_answer(values):  # [B, N] -> [B]
        return tf.gather(values, chosen, batch_dims=1)

    return {
        "answer": of_answer(text),
        "start": of_answer(start),
        "end": of_answer(end),
        "score": of_answer(probability),
        "score_difference": tf.cast(difference, tf.float32),
        "n_best_count": tf.reduce_sum(tf.cast(exists, tf.int32), axis=1),
        "n_best_text": text,
        "n_best_start": start,
        "n_best_end": end,
        "n_best_score": probability,
    }


def _empty(example, score):
    """No answer to each of these questions."""
    zeros = tf.zeros_like(example)
    return Candidates(example, tf.fill(tf.shape(example), ""), zeros, zeros, score)


def _best_first(example, text, start, end, score):
    """Candidates by question, and by score within one; equal ones stay in their order."""
    order = tf.argsort(score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(example, order), stable=True))
    return Candidates(*(tf.gather(field, order) for field in (example, text, start, end, score)))
