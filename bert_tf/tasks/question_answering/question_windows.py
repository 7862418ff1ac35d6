"""Windows of questions and contexts in memory, as rows of tokens.

Glossary: `N` questions, `W` windows, `B` rows of a batch, `T` length of its longest window.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import DataError, user_error
from bert_tf.inputs.columns import is_missing
from bert_tf.inputs.labels import row_weights
from bert_tf.inputs.token_rows import RaggedRows, joined, tokenize_in_parts
from bert_tf.tasks.question_answering.files import GoldAnswer, answer_span
from bert_tf.tasks.question_answering.windows import (
    Windows,
    check_window_lengths,
    pack_windows_eagerly,
)

_TEXTS_AT_ONCE = 1000  # tokenized together; more gain no speed
_EXAMPLES_AT_ONCE = 2000  # cut into windows together, so that little memory is needed


class QuestionWindows(RaggedRows):
    """The windows of many questions; see `pack_windows`.

    Args:
        tokenizer: A `BertTokenizer`.
        questions, contexts: N questions and the context of each.
        max_length, doc_stride, max_query_length: See `BertQuestionAnswerer`.

    Attributes:
        windows, examples: The `Windows`, and the question of each, int64 `[W]`.
        labels: What training needs; see `with_targets`.

    Raises:
        UserError: If there is not one context for each question, or the lengths leave no room.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> windows = QuestionWindows(tokenizer, ["Where?"], ["In Paris. " * 300])
        >>> windows.lengths()[:2], windows.windows.start.numpy()[:2]
        (array([384, 384]), array([  0, 128]))
    """

    def __init__(
        self,
        tokenizer,
        questions: Sequence[str],
        contexts: Sequence[str],
        max_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
    ):
        if len(questions) != len(contexts):
            received = f"{len(questions)} questions, {len(contexts)} contexts"
            raise user_error("`contexts`", "be one for each question", received)
        lengths = (max_length, doc_stride, max_query_length)
        check_window_lengths(*lengths, tokenizer.separators)
        self.contexts = contexts
        self.labels = ()
        self._tokenized = _TokenizedOnce(tokenizer, questions, contexts)
        parts = []
        names = ("max_length", "doc_stride", "max_query_length")
        pack = pack_windows_eagerly(tokenizer, **dict(zip(names, lengths, strict=True)))
        for begin in range(0, max(1, len(questions)), _EXAMPLES_AT_ONCE):
            part = slice(begin, begin + _EXAMPLES_AT_ONCE)
            rows = self._tokenized.questions[part], self._tokenized.contexts[part]
            windows = pack(self._tokenized.ids, *rows)
            if begin:
                windows = windows._replace(example=windows.example + begin)
            parts.append(windows)
        self._keep(joined(parts), tokenizer.pad_token_id)

    def _keep(self, windows, pad_token_id):
        super().__init__(windows.token_ids, windows.segment_ids, pad_token_id)
        self.windows = windows
        self.examples = windows.example.numpy()

    def with_targets(
        self, answers: Sequence, sample_weight: Sequence[float] | None = None
    ) -> list[int]:
        """Sets `labels`, and removes the windows of questions whose answer is not in the context.

        `labels` are int32 `[W, 2]`, the first and the last token of the answer in each window,
        (0, 0) where it is not all in the window, and, with weights, float32 `[W]`.

        Args:
            answers: The answer of each, a `GoldAnswer` or a pair (text, start); None for no answer.
            sample_weight: The weight of each question in the loss.

        Returns:
            The numbers of the questions that are left out because their context does not have the
            answer's text at its place.

        Raises:
            UserError: If there is not one answer and weight for each question.
            DataError: If no question is left.
        """
        count = len(self.contexts)
        if len(answers) != count:
            expected = "be one for each question, or None"
            raise user_error("`answers`", expected, f"{count} questions, {len(answers)} answers")
        spans = np.full([count, 2], -1)  # of the context's tokens; no window has the token -1
        left_out = []
        for number, answer in enumerate(answers):
            if is_missing(answer):
                continue
            chars = answer_span(self.contexts[number], GoldAnswer(*answer))
            span = chars and self._tokenized.token_span(number, *chars)
            if span:
                spans[number] = span
            else:
                left_out.append(number)
        kept = ~np.isin(self.examples, left_out)
        if not kept.any():
            expected = "be in their contexts where `answer_start` says"
            raise user_error("`answers`", expected, f"none in {count} questions", DataError)
        with tf.device("CPU:0"):
            windows = Windows(*(tf.ragged.boolean_mask(part, kept) for part in self.windows))
        self._keep(windows, self.features["token_ids"][1])
        start, offset = self.windows.start.numpy(), self.windows.offset.numpy()
        end = start + self.lengths() - offset - 1
        spans = spans[self.examples]  # [W, 2]
        is_inside = (spans[:, 0] >= start) & (spans[:, 1] < end)
        targets = spans + (offset - start)[:, np.newaxis]
        self.labels = (np.where(is_inside[:, np.newaxis], targets, 0).astype(np.int32),)
        if sample_weight is not None:
            self.labels += (row_weights(sample_weight, count)[self.examples],)
        return left_out

    def part(self, examples: slice) -> tuple[Any, ...]:
        """Returns what the answers to some questions are found with.

        Returns:
            The rows of their windows and what `select_answers_eagerly` takes after the logits.
        """
        tokenized = self._tokenized
        rows = slice(*np.searchsorted(self.examples, [examples.start, examples.stop]))
        windows = self.windows
        if rows != slice(0, len(self)):  # slices of ragged tensors take long
            windows = Windows(*(field[rows] for field in windows))
            windows = windows._replace(example=windows.example - examples.start)
        contexts = tf.constant(self.contexts[examples], tf.string)
        places = tokenized.starts, tokenized.ends, tokenized.contexts[examples]
        return rows, windows, contexts, *places


class _TokenizedOnce:
    """Questions and contexts, of which each different text is tokenized once.

    Attributes:
        questions, contexts: The row of each among those of the tokens, int64 `[N]`.
        ids, starts, ends: The tokens of each different text, and the places of their first
            character and of the one after their last, ragged `[texts, (tokens)]`.
    """

    def __init__(self, tokenizer, questions, contexts):
        different = list(dict.fromkeys([*contexts, *questions]))
        row = {text: number for number, text in enumerate(different)}
        self.questions, self.contexts = (
            np.array([row[text] for text in texts], np.int64) for texts in (questions, contexts)
        )

        def pieces(texts):
            found = tokenizer.tokenize_with_offsets(tf.constant(texts, tf.string), True)
            return found.ids, found.char_starts, found.char_ends

        self.ids, self.starts, self.ends = tokenize_in_parts(pieces, [different], _TEXTS_AT_ONCE)
        self._splits = self.ids.row_splits.numpy()
        self._starts, self._ends = self.starts.values.numpy(), self.ends.values.numpy()

    def token_span(self, context: int, start: int, end: int) -> tuple[int, int] | None:
        """Returns a context's first and last token with characters of `[start, end)`, if any."""
        row = self.contexts[context]
        tokens = slice(self._splits[row], self._splits[row + 1])
        first = int(np.searchsorted(self._ends[tokens], start, side="right"))
        last = int(np.searchsorted(self._starts[tokens], end, side="left")) - 1
        return (first, last) if first <= last else None
