"""Logits of windows to answers: the n best spans, the score of no answer, the text of the context.

The text of an answer is cut out of its context by the offsets of its tokens, where the original
aligned strings. All functions run eagerly and in an exported graph.

Glossary: `B` questions, `S` windows, `T` tokens of the longest, `K` spans looked at in a window,
`M` tokens of the longest answer, `C` possible answers of all questions, `N` answers kept of a
question.

Reference: google-research/bert run_squad.py, `write_predictions`.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.inputs.traced import IDS, PLACES, SPLITS, STRINGS, traced
from bert_tf.tasks.question_answering.windows import Windows
from bert_tf.text.code_points import TextSlices

# Spans of a window that are looked at for each answer to keep, as some have the same text.
_SPANS_PER_ANSWER = 4


class SpanCandidates(NamedTuple):
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

    def gather(self, rows: tf.Tensor) -> "SpanCandidates":
        """Returns some of them."""
        return SpanCandidates(*(tf.gather(field, rows) for field in self))


class Selection(NamedTuple):
    """The answers to questions.

    Attributes:
        n_best: The candidates that are kept, with no answer among them where that is allowed.
        probability: float64 `[C]`, of each of them: softmax of the scores of a question.
        has_best: bool `[B]`, whether a span is possible.
        best: The best span of every question, `[B]`; undefined where no span is possible.
        best_probability, null_probability: float64 `[B]`, of the best span and of no answer.
        score_difference: float64 `[B]`, how much better no answer is than the best span (than a
            span of score 0 if there is none).
    """

    n_best: SpanCandidates
    probability: tf.Tensor
    has_best: tf.Tensor
    best: SpanCandidates
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
) -> SpanCandidates:
    """Returns the possible answers to all questions: the best spans of each window.

    A span counts if it is in the context, starts where its window is the max-context one, and has
    at most `max_answer_length` tokens. google-research/bert combines the best starts with the best
    ends of all tokens, and may therefore miss the best span.

    Args:
        windows: What `pack_windows` returned.
        logits: Floats `[S, 2, T]`: of the first token and of the last. Columns after a window's
            last token do not count.
        contexts: string `[B]`.
        char_starts, char_ends: Where the contexts' tokens begin and end, ragged int64
            `[B, (tokens)]`.
        n_best_size, max_answer_length: See `BertQuestionAnswerer`.
    """
    shows_best = windows.shows_best.to_tensor(False, shape=tf.shape(logits)[::2])  # [S, T]
    columns = tf.range(tf.shape(logits)[2], dtype=tf.int64)
    lengths = windows.token_ids.row_lengths()[:, tf.newaxis]  # [S, 1]
    is_context = (columns >= windows.offset[:, tf.newaxis]) & (columns < lengths - 1)
    allowed = tf.stack([shows_best, is_context], axis=1)  # [S, 2, T]
    logits = tf.where(allowed, tf.cast(logits, tf.float64), -np.inf)
    window, first, last = _best_spans(logits, n_best_size * _SPANS_PER_ANSWER, max_answer_length)

    start_logit = tf.gather_nd(logits[:, 0], tf.stack([window, first], axis=1))
    end_logit = tf.gather_nd(logits[:, 1], tf.stack([window, last], axis=1))
    # Added to a column, the token's number among those of all contexts.
    first_token = tf.gather(char_starts.row_starts(), windows.example)
    first_token = tf.gather(first_token + windows.start - windows.offset, window)
    example = tf.gather(windows.example, window)
    start = tf.gather(char_starts.values, first_token + first)
    end = tf.gather(char_ends.values, first_token + last)
    text = TextSlices(contexts)(example, start, end)
    candidates = _best_first(SpanCandidates(example, text, start, end, start_logit, end_logit))
    # The first of every text, that is its best.
    keys = [tf.strings.as_string(candidates.example), candidates.text]
    unique, group = tf.unique(tf.strings.join(keys, separator=":"))
    kept = tf.math.unsorted_segment_min(tf.range(tf.size(group)), group, tf.size(unique))
    return candidates.gather(kept)


def _best_spans(logits, spans, max_answer_length):
    """Returns window, first and last token of the `spans` best spans of each window, int64 `[C]`.

    The best spans begin with the tokens whose best spans are the best, so only those are combined
    with all their ends. Of equal spans the first counts, as in `top_k`.
    """
    starts, ends = logits[:, 0], logits[:, 1]  # [S, T]
    ends = tf.pad(ends, [[0, 0], [0, max_answer_length - 1]], constant_values=-np.inf)
    # [S, T + M - 1] -> [S, T]: the best end for each start.
    best_ends = tf.nn.max_pool1d(ends[:, :, tf.newaxis], max_answer_length, 1, "VALID")[:, :, 0]
    _, first = tf.math.top_k(starts + best_ends, tf.minimum(spans, tf.shape(starts)[1]))
    first = tf.sort(first)  # [S, K]
    last = first[:, :, tf.newaxis] + tf.range(max_answer_length)  # [S, K, M]
    scores = tf.gather(starts, first, batch_dims=1)[:, :, tf.newaxis]
    scores += tf.gather(ends, last, batch_dims=1)
    scores = tf.reshape(scores, [tf.shape(scores)[0], -1])  # [S, K, M] -> [S, K * M]
    best, cells = tf.math.top_k(scores, tf.minimum(spans, tf.shape(scores)[1]))  # [S, K]
    found = tf.where(best > -np.inf)  # [C, 2]: window, rank
    cell = tf.gather_nd(cells, found)
    window = found[:, 0]
    start = tf.stack([window, tf.cast(cell // max_answer_length, tf.int64)], axis=1)
    first = tf.cast(tf.gather_nd(first, start), tf.int64)
    return window, first, first + tf.cast(cell % max_answer_length, tf.int64)


def null_logits(windows: Windows, logits: tf.Tensor) -> tf.Tensor:
    """Returns both logits of no answer, float64 `[B, 2]`: at `[CLS]` of the window of the least."""
    # The sum over one column, or over none in a batch without windows.
    logits = tf.cast(tf.reduce_sum(logits[:, :, :1], axis=2), tf.float64)  # [S, 2]
    score = tf.reduce_sum(logits, axis=1)
    least = tf.gather(tf.math.segment_min(score, windows.example), windows.example)
    numbers = tf.where(score == least, tf.range(tf.size(score)), tf.int32.max)
    return tf.gather(logits, tf.math.segment_min(numbers, windows.example))


def select(
    candidates: SpanCandidates, null: tf.Tensor, n_best_size: int, allow_no_answer: bool
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
    # If scores are equal, spans stay before no answer.
    n_best = _best_first(_joined(candidates, empty))
    rank = tf.RaggedTensor.from_value_rowids(n_best.score, n_best.example, rows, validate=False)
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


def select_answers(
    n_best_size: int,
    max_answer_length: int,
    allow_no_answer: bool,
    logits: tf.Tensor,
    windows: Windows,
    *contexts: tf.Tensor | tf.RaggedTensor,
) -> Selection:
    """Returns the answers to questions; `contexts` are further arguments of `find_candidates`."""
    found = find_candidates(windows, logits, *contexts, n_best_size, max_answer_length)
    return select(found, null_logits(windows, logits), n_best_size, allow_no_answer)


_LOGITS = tf.TensorSpec([None, 2, None])
_MARKS = tf.RaggedTensorSpec([None, None], tf.bool)
_WINDOWS = Windows(IDS, IDS, _MARKS, SPLITS, SPLITS, SPLITS)


def _select_rows(*arguments):
    *others, char_starts, char_ends, rows = arguments
    return select_answers(*others, tf.gather(char_starts, rows), tf.gather(char_ends, rows))


# It has one more argument, int64 `[B]`: the rows of the places that the contexts have.
select_answers_eagerly = traced(_select_rows, [_LOGITS, _WINDOWS, STRINGS, PLACES, PLACES, SPLITS])


def _no_answer(example, logits):
    """Returns no answer to each of these questions."""
    zeros = tf.zeros_like(example)
    text = tf.fill(tf.shape(example), "")
    return SpanCandidates(example, text, zeros, zeros, logits[:, 0], logits[:, 1])


def _joined(one, other):
    return SpanCandidates(*(tf.concat(pair, axis=0) for pair in zip(one, other)))


def _best_first(candidates):
    """Returns candidates by question, and by score within one; equal ones stay in their order."""
    order = tf.argsort(candidates.score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(candidates.example, order), stable=True))
    return candidates.gather(order)
