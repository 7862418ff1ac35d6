"""Logits of windows to answers: the n best spans, the score of no answer, the text of the context.

The text of an answer is cut out of its context by the offsets of its tokens, where the original
aligned strings. All functions run eagerly and in an exported graph.

Glossary: `B` questions, `S` windows, `T` tokens of the longest, `K` starts and ends looked at in a
window, `C` possible answers of all questions, `N` answers kept of a question.

Reference: google-research/bert run_squad.py, `write_predictions`.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.text.text_slices import TextSlices


class Candidates(NamedTuple):
    """Possible answers, the best of each question first and no text twice.

    Attributes:
        example: int64 `[C]`, which question; ascending.
        text: string `[C]`; "" is no answer.
        start, end: int64 `[C]`, the first character and the one after the last.
        start_logit, end_logit: float64 `[C]`.
    """

    example: tf.Tensor
    text: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    start_logit: tf.Tensor
    end_logit: tf.Tensor

    @property
    def score(self) -> tf.Tensor:
        """float64 `[C]`, the sum of both logits."""
        return self.start_logit + self.end_logit

    def gather(self, rows: tf.Tensor) -> "Candidates":
        """Returns some of them."""
        return Candidates(*(tf.gather(field, rows) for field in self))


class Selection(NamedTuple):
    """The answers to questions.

    Attributes:
        n_best: The candidates that are kept, with no answer among them where that is allowed.
        probability: float64 `[C]`, of each of them: softmax of the scores of a question.
        has_best: bool `[B]`, whether a span is possible.
        best: The best span of every question, `[B]`; what it is without one is undefined.
        best_probability, null_probability: float64 `[B]`, of the best span and of no answer.
        score_difference: float64 `[B]`, how much better no answer is than the best span (than a
            span of score 0 if there is none).
    """

    n_best: Candidates
    probability: tf.Tensor
    has_best: tf.Tensor
    best: Candidates
    best_probability: tf.Tensor
    null_probability: tf.Tensor
    score_difference: tf.Tensor

    def is_null(self, null_score_diff_threshold: float | None) -> tf.Tensor:
        """Returns for each question whether it has no answer, bool `[B]`.

        Args:
            null_score_diff_threshold: No answer is chosen if it is better than the best span by
                more than this. None where every question has an answer.
        """
        if null_score_diff_threshold is None:
            return ~self.has_best
        return ~self.has_best | (self.score_difference > null_score_diff_threshold)


def find_candidates(
    windows: Windows,
    logits: tf.Tensor,
    contexts: tf.Tensor,
    char_starts: tf.RaggedTensor,
    char_ends: tf.RaggedTensor,
    n_best_size: int,
    max_answer_length: int,
) -> Candidates:
    """Returns the possible answers to all questions.

    A span counts if it is in the context, starts where its window is the max-context one, and has
    at most `max_answer_length` tokens.

    Args:
        windows: What `pack_windows` returned.
        logits: Floats `[S, 2, T]`: of the first token and of the last. Columns after a window's
            last token do not count.
        contexts: string `[B]`.
        char_starts, char_ends: Where the contexts' tokens begin and end, ragged int64
            `[B, (tokens)]`.
        n_best_size, max_answer_length: As in `BertQuestionAnswerer`.
    """
    count = tf.shape(logits)[2]
    columns = tf.range(count, dtype=tf.int64)
    lengths = windows.token_ids.row_lengths()[:, tf.newaxis]  # [S, 1]
    logits = tf.where((columns < lengths)[:, tf.newaxis], logits, logits.dtype.min)
    shows_best = windows.shows_best.to_tensor(False, shape=tf.shape(logits)[::2])  # [S, T]
    is_context = (columns >= windows.offset[:, tf.newaxis]) & (columns < lengths - 1)

    # Matches google-research/bert: the best of all tokens, those of the question too.
    values, places = tf.math.top_k(logits, tf.minimum(n_best_size, count))  # [S, 2, K]
    length = places[:, 1, tf.newaxis, :] - places[:, 0, :, tf.newaxis] + 1  # [S, K, K]
    startable = tf.gather(shows_best, places[:, 0], batch_dims=1)[:, :, tf.newaxis]
    endable = tf.gather(is_context, places[:, 1], batch_dims=1)[:, tf.newaxis]
    possible = startable & endable & (length >= 1) & (length <= max_answer_length)
    found = tf.where(possible)  # [C, 3]: window, start's rank, end's rank
    window = found[:, 0]

    def of_both_ends(values):  # [S, 2, K] -> two times [C]
        cells = [tf.gather(found, [0, 1 + end], axis=1) for end in (0, 1)]
        return [tf.gather_nd(values[:, end], cells[end]) for end in (0, 1)]

    # Added to a column, the token's number among those of all contexts.
    first_token = tf.gather(char_starts.row_starts(), windows.example)
    first_token = tf.gather(first_token + windows.start - windows.offset, window)
    first, last = (first_token + tf.cast(place, tf.int64) for place in of_both_ends(places))
    example = tf.gather(windows.example, window)
    start, end = tf.gather(char_starts.values, first), tf.gather(char_ends.values, last)
    end_logits = (tf.cast(logit, tf.float64) for logit in of_both_ends(values))
    text = TextSlices(contexts)(example, start, end)
    candidates = _best_first(Candidates(example, text, start, end, *end_logits))
    # The first of every text, that is its best.
    keys = [tf.strings.as_string(candidates.example), candidates.text]
    unique, group = tf.unique(tf.strings.join(keys, separator=":"))
    kept = tf.math.unsorted_segment_min(tf.range(tf.size(group)), group, tf.size(unique))
    return candidates.gather(kept)


def null_logits(windows: Windows, logits: tf.Tensor) -> tf.Tensor:
    """Returns both logits of no answer, float64 `[B, 2]`: at `[CLS]` of the window of the least."""
    logits = tf.cast(logits[:, :, 0], tf.float64)  # [S, 2]
    score = tf.reduce_sum(logits, axis=1)
    least = tf.gather(tf.math.segment_min(score, windows.example), windows.example)
    numbers = tf.where(score == least, tf.range(tf.size(score)), tf.int32.max)
    return tf.gather(logits, tf.math.segment_min(numbers, windows.example))


def select(
    candidates: Candidates, null: tf.Tensor, n_best_size: int, allow_no_answer: bool
) -> Selection:
    """Selects the n best answers to each question from what the functions above returned.

    With `allow_no_answer`, no answer is a candidate too; its logits are `null`, float64 `[B, 2]`.
    """
    null_score = tf.reduce_sum(null, axis=1)
    rows = tf.size(null_score, tf.int64)
    every = tf.range(rows)
    numbers = tf.range(tf.size(candidates.example, tf.int64))
    # The first candidate of a question; for one without any a number that is too large.
    first = tf.math.unsorted_segment_min(numbers, candidates.example, rows)
    has_best = first < tf.int64.max
    # One candidate at least, so that there is something to gather.
    best = _joined(candidates, _no_answer(every[:1], null[:1]))
    best = best.gather(tf.where(has_best, first, 0))

    if allow_no_answer:
        empty = _no_answer(every, null)
    else:  # where no span is possible
        without = tf.where(~has_best)[:, 0]
        empty = _no_answer(without, tf.zeros([tf.size(without), 2], tf.float64))
        null_score = tf.zeros_like(null_score)
    # Of equal scores the spans stay before no answer.
    n_best = _best_first(_joined(candidates, empty))
    rank = tf.RaggedTensor.from_value_rowids(n_best.score, n_best.example, rows)
    rank = tf.ragged.range(rank.row_lengths()).values  # [C]
    # No answer is kept even if others leave it no place.
    n_best = n_best.gather(tf.where((rank < n_best_size) | (n_best.text == ""))[:, 0])

    highest = tf.math.segment_max(n_best.score, n_best.example)  # [B]
    shares = tf.exp(n_best.score - tf.gather(highest, n_best.example))
    totals = tf.math.segment_sum(shares, n_best.example)
    return Selection(
        n_best,
        shares / tf.gather(totals, n_best.example),
        has_best,
        best,
        tf.exp(best.score - highest) / totals,
        tf.exp(null_score - highest) / totals,
        tf.reduce_sum(null, axis=1) - tf.where(has_best, best.score, 0.0),
    )


def _no_answer(example, logits):
    """Returns no answer to each of these questions."""
    zeros = tf.zeros_like(example)
    text = tf.fill(tf.shape(example), "")
    return Candidates(example, text, zeros, zeros, logits[:, 0], logits[:, 1])


def _joined(one, other):
    return Candidates(*(tf.concat(pair, axis=0) for pair in zip(one, other)))


def _best_first(candidates):
    """Candidates by question, and by score within one; equal ones stay in their order."""
    order = tf.argsort(candidates.score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(candidates.example, order), stable=True))
    return candidates.gather(order)
