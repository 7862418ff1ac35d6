"""Questions and contexts to windows, in the graph: what `data.context_windows` does on arrays.

Glossary: `B` questions, `S` windows, `T` tokens of the longest.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.tasks.question_answering.context_windows import LENGTH_WEIGHT
from bert_tf.text import packing


class GraphWindows(NamedTuple):
    """The windows of a batch of questions.

    Attributes:
        tokens: The token dictionary, `[S, T]`.
        example: int64 `[S]`, which question.
        first_token: int64 `[S]`: added to a column, the token's number among those of all contexts.
        is_context: bool `[S, T]`.
        shows_best: bool `[S, T]`, the context's tokens that no other window shows better.
    """

    tokens: dict[str, tf.Tensor]
    example: tf.Tensor
    first_token: tf.Tensor
    is_context: tf.Tensor
    shows_best: tf.Tensor


def graph_windows(
    tokenizer,
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    max_length: int,
    doc_stride: int,
    max_query_length: int,
) -> GraphWindows:
    """Cuts tokenized questions and contexts into windows; see `data.question_windows`.

    Args:
        tokenizer: The `BertTokenizer`.
        questions: Ids, ragged int32 `[B, (tokens)]`.
        contexts: The same.
        max_length: The most tokens of a window.
        doc_stride: Tokens from the start of a window to the start of the next.
        max_query_length: Longer questions lose their end.
    """
    questions = questions[:, :max_query_length]
    sizes = contexts.row_lengths()  # [B]
    room = max_length - 3 - questions.row_lengths()
    # Matches google-research/bert: a step beyond the window would leave tokens out.
    step = tf.minimum(room, doc_stride)
    counts = 1 + tf.maximum(-((room - sizes) // step), 0)  # [B]; the division rounds up so
    example = tf.repeat(tf.range(contexts.nrows()), counts)  # [S]
    windows = tf.range(tf.size(example, tf.int64))
    number = windows - tf.repeat(tf.cumsum(counts, exclusive=True), counts)
    start = number * tf.gather(step, example)
    length = tf.minimum(tf.gather(sizes, example) - start, tf.gather(room, example))

    inside = tf.ragged.range(length)  # ragged [S, (tokens)]: the place in the window
    window = inside.value_rowids()
    context_start = tf.gather(contexts.row_starts(), example) + start
    places = inside.values + tf.gather(context_start, window)  # among the tokens of all contexts
    own_questions = tf.gather(questions, example)
    tokens = packing.pad(
        *packing.pack(
            own_questions,
            inside.with_values(tf.gather(contexts.values, places)),
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            None,
            "longest_first",
        ),
        tokenizer.pad_token_id,
        None,
        1,
    )
    # The best window of a token: the most tokens on its shorter side; the first of equals.
    size = tf.gather(length, window)
    score = tf.cast(tf.minimum(inside.values, size - 1 - inside.values), tf.float64)
    score += LENGTH_WEIGHT * tf.cast(size, tf.float64)
    total = tf.size(contexts.values)
    highest = tf.gather(tf.math.unsorted_segment_max(score, places, total), places)
    candidates = tf.where(score == highest, window, tf.int64.max)
    best = tf.gather(tf.math.unsorted_segment_min(candidates, places, total), places)

    offset = own_questions.row_lengths() + 2  # behind [CLS], the question and [SEP]
    columns = inside.values + tf.gather(offset, window)
    cells = tf.stack([window, columns], axis=1)
    shape = tf.shape(tokens["token_ids"], tf.int64)

    def marked(values):
        return tf.scatter_nd(cells, tf.cast(values, tf.int32), shape) > 0

    return GraphWindows(
        tokens, example, context_start - offset, marked(tf.ones_like(best)), marked(best == window)
    )
