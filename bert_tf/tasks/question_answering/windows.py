"""Questions and contexts to windows: `[CLS] question [SEP] part of the context [SEP]`.

A context that does not fit is cut into windows that overlap. A token of several windows counts in
the one that shows most of what is around it, its "max-context" window. All functions run eagerly
and in an exported graph.

Glossary: `B` questions, `S` windows, `T` tokens of a window.

Reference: google-research/bert run_squad.py, `convert_examples_to_features`.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.errors import check_limits, require
from bert_tf.inputs.traced import IDS, SPLITS, traced

# The weight of a window's length in its score for a token, against the distance to the nearer end.
LENGTH_WEIGHT = 0.01  # google-research/bert run_squad.py, `_check_is_max_context`


class Windows(NamedTuple):
    """The windows of a batch of questions.

    Attributes:
        token_ids, segment_ids: Ragged int32 `[S, (T)]`; segment 1 is the context with its `[SEP]`.
        shows_best: Ragged bool `[S, (T)]`, the tokens of the context that no other window shows
            better.
        example: int64 `[S]`, the question of each window, ascending.
        start, offset: int64 `[S]`, the first token of the context in the window, and its column.
    """

    token_ids: tf.RaggedTensor
    segment_ids: tf.RaggedTensor
    shows_best: tf.RaggedTensor
    example: tf.Tensor
    start: tf.Tensor
    offset: tf.Tensor


def pack_windows(
    tokenizer,
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    max_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Windows:
    """Cuts tokenized questions and contexts into windows; every question has at least one.

    Args:
        tokenizer: The tokenizer.
        questions, contexts: Ids, ragged int32 `[B, (tokens)]`.
        max_length, doc_stride, max_query_length: See `QuestionWindows`.
    """
    questions = questions[:, :max_query_length]
    sizes = contexts.row_lengths()  # [B]
    room = max_length - 2 - tokenizer.separators - questions.row_lengths()
    # Matches google-research/bert: a step beyond the window would leave tokens out.
    step = tf.minimum(room, doc_stride)
    counts = 1 + tf.maximum(-((room - sizes) // step), 0)  # [B]; the division rounds up so
    numbers = tf.ragged.range(counts)  # ragged [B, (windows)]
    example = row_ids(numbers.row_splits)  # [S]
    start = numbers.values * tf.gather(step, example)
    length = tf.minimum(tf.gather(sizes, example) - start, tf.gather(room, example))

    inside = tf.ragged.range(length)  # ragged [S, (tokens)]: the place in the window
    window = row_ids(inside.row_splits)
    context_start = tf.gather(contexts.row_starts(), example) + start
    places = inside.values + tf.gather(context_start, window)  # among the tokens of all contexts
    own_questions = tf.gather(questions, example)
    texts = own_questions, inside.with_values(tf.gather(contexts.values, places))
    special = tokenizer.cls_token_id, tokenizer.sep_token_id
    token_ids, segment_ids = tokenizer.join_segments(*texts, *special, None)
    # The best window of a token: the most tokens on its shorter side; the first of equals.
    size = tf.gather(length, window)
    score = tf.cast(tf.minimum(inside.values, size - 1 - inside.values), tf.float64)
    score += LENGTH_WEIGHT * tf.cast(size, tf.float64)
    total = tf.size(contexts.values)
    highest = tf.gather(tf.math.unsorted_segment_max(score, places, total), places)
    candidates = tf.where(score == highest, window, tf.int64.max)
    best = tf.gather(tf.math.unsorted_segment_min(candidates, places, total), places)

    offset = own_questions.row_lengths() + 1 + tokenizer.separators  # after [CLS] … [SEP]
    cells = inside.values + tf.gather(token_ids.row_starts() + offset, window)
    is_best = tf.cast(best == window, tf.int32)
    is_best = tf.scatter_nd(cells[:, tf.newaxis], is_best, tf.shape(token_ids.values, tf.int64))
    shows_best = token_ids.with_values(is_best > 0)
    return Windows(token_ids, segment_ids, shows_best, example, start, offset)


def _pack_rows(tokenizer, ids, questions, contexts, **lengths):
    texts = tf.gather(ids, questions), tf.gather(ids, contexts)
    return pack_windows(tokenizer, *texts, **lengths)


# Its questions and contexts are int64 `[B]`, the rows of ids that they have.
pack_windows_eagerly = traced(_pack_rows, [IDS, SPLITS, SPLITS])


def check_window_lengths(
    max_length: int, doc_stride: int, max_query_length: int, separators: int = 1
) -> None:
    """Raises `UserError` if a window has no room for the longest question and a context token."""
    check_limits(doc_stride=doc_stride, max_query_length=max_query_length)
    besides = 3 + separators
    has_room = max_length >= max_query_length + besides
    rule = f"must be at least max_query_length + {besides}: special tokens, and one of the context"
    require(has_room, rule, max_length=max_length, max_query_length=max_query_length)
