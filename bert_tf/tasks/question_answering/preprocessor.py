"""What `BertQuestionAnswerer` reads and answers: questions with contexts of any length."""

import dataclasses
import numbers
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require
from bert_tf.inputs.columns import TextColumns, is_text, object_array, plain_rows
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.tasks.question_answering.answers import (
    Selection,
    select_answers,
    select_answers_eagerly,
)
from bert_tf.tasks.question_answering.files import report_left_out
from bert_tf.tasks.question_answering.question_windows import QuestionWindows

_QUESTIONS_AT_ONCE = 1000  # decoded together, so that little memory is needed


class Answer(NamedTuple):
    """An answer out of a context: `text == context[start:end]`.

    Attributes:
        text: The answer; "" where the context has none.
        start, end: Its first character in the context, in code points, and the one after its last.
        score: Its probability among the n best.

    Example:
        >>> answer = Answer("Paris", 9, 14, 0.5)
        >>> "It is in Paris."[answer.start : answer.end]
        'Paris'
    """

    text: str
    start: int
    end: int
    score: float


@dataclasses.dataclass(frozen=True)
class AnswerCandidate:
    """A possible answer.

    Attributes:
        text, start, end: See `Answer`.
        start_logit, end_logit: The logits of its first and of its last token.
        probability: Softmax of the sum of both, over the n best.
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float
    probability: float


@dataclasses.dataclass(frozen=True)
class AnswerSelection:
    """The answers to one question, best first.

    Attributes:
        n_best: The candidates, no text twice; with no answer among them where that is allowed.
        best: The best span; None if no span is possible.
        score_difference: How much better no answer is than the best span (than a span of score 0 if
            there is none).
        answer: `best`, or no answer, by the model's threshold.
    """

    n_best: tuple[AnswerCandidate, ...]
    best: Answer | None
    score_difference: float
    answer: Answer


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class QuestionAnsweringPreprocessor(Preprocessor):
    """Maps questions and contexts to windows, logits of windows to answers."""

    doc_stride: int = 128
    max_query_length: int | None = None
    n_best_size: int = 20
    max_answer_length: int = 30
    allow_no_answer: bool = False
    null_score_diff_threshold: float = 0.0

    def targets(self, y, x):
        """Returns the targets; for raw text pairs of an answer and its place, or None."""
        if y is None or not isinstance(x, TextColumns):
            return super().targets(y, x)
        rows = object_array(plain_rows(y, "y"))  # so that Keras's `validation_split` can cut them
        for row, value in enumerate(rows):
            if value is None:
                continue
            pair = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else ()
            if not (len(pair) == 2 and is_text(pair[0]) and isinstance(pair[1], numbers.Integral)):
                raise UserError(
                    "An answer must be a pair of its text and its first character, or None. "
                    f"Received in row {row}: {value!r}"
                )
            text, start = pair
            text = text if isinstance(text, str) else text.decode("utf-8", "replace")
            rows[row] = text, int(start)
        return rows

    def training_rows(self, columns, y, sample_weight):
        """Returns the windows to train on; the examples that are left out are logged.

        Raises:
            DataError: If no answer is in its context.
            UserError: If `y` is None, or there is not one answer and weight for each question.
        """
        require(y is not None, "must be the answers to the questions", UserError, y=None)
        rows = self.encode(columns)
        left_out = rows.with_targets(y, sample_weight)
        report_left_out(left_out, strings(columns[0]), rows.contexts, y)
        return rows, rows.labels

    def encode(self, columns, window_stride=None):
        """Returns the windows of the contexts.

        Raises:
            UserError: If there is no tokenizer.
        """
        self.require_tokenizer()
        texts, lengths = map(strings, columns), self.window_lengths()
        return QuestionWindows(self.tokenizer, *texts, **lengths)

    def postprocess(self, values, rows, columns, pooling):
        """Returns `logits` `[W, 2, T]` of the windows and their `row_splits`; T is the longest."""
        counts = np.bincount(rows.examples, minlength=columns.num_rows)
        return {"logits": values, "row_splits": np.concatenate([[0], np.cumsum(counts)])}

    @property
    def threshold(self) -> float | None:
        """`null_score_diff_threshold`; None where every question has an answer."""
        return self.null_score_diff_threshold if self.allow_no_answer else None

    def select_in_graph(self, logits, windows, contexts, char_starts, char_ends) -> Selection:
        """Returns the answers to a batch of questions; see `find_candidates`."""
        windows = logits, windows, contexts, char_starts, char_ends
        return select_answers(*self._select_options(), *windows)

    def _select_options(self):
        longest = min(self.max_answer_length, self.max_sequence_length)
        return self.n_best_size, longest, self.allow_no_answer

    def select(
        self, values: np.ndarray, rows: QuestionWindows, columns: TextColumns
    ) -> list[AnswerSelection]:
        """Returns the n best answers to each question, and the score of no answer."""
        found, select = [], select_answers_eagerly(*self._select_options())
        for begin in range(0, columns.num_rows, _QUESTIONS_AT_ONCE):
            windows, *part = rows.part(slice(begin, begin + _QUESTIONS_AT_ONCE))
            selection = select(values[windows], *part)
            found += self.selections(selection)
        return found

    def selections(self, selection: Selection) -> list[AnswerSelection]:
        """Returns the answers to each question."""
        selection = tf.nest.map_structure(np.asarray, selection)
        n_best = [[] for _ in range(len(selection.has_best))]
        for row, text, *rest in _rows(*selection.n_best, selection.probability):
            n_best[row].append(AnswerCandidate(text.decode(), *rest))
        answers = _rows(
            selection.has_best,
            selection.is_null(self.threshold),
            selection.null_probability,
            selection.score_difference,
            *selection.best[1:4],
            selection.best_probability,
        )
        found = []
        for kept, (has_best, is_null, null, difference, text, *rest) in zip(n_best, answers):
            best = Answer(text.decode(), *rest) if has_best else None
            answer = Answer("", 0, 0, null) if is_null else best
            found.append(AnswerSelection(tuple(kept), best, difference, answer))
        return found

    def decode(self, values, rows, columns):
        """Returns an `Answer` to each question."""
        return [selection.answer for selection in self.select(values, rows, columns)]

    def window_lengths(self) -> dict[str, int]:
        """Returns how contexts are cut: arguments of `QuestionWindows`."""
        lengths = {name: getattr(self, name) for name in ("doc_stride", "max_query_length")}
        return {"max_length": self.max_sequence_length, **lengths}


def _rows(*columns):
    """Returns arrays `[n]` as n tuples of Python's own values."""
    return zip(*(column.tolist() for column in columns))


def strings(column: Sequence[bytes]) -> list[str]:
    return [text.decode("utf-8", "replace") for text in column]
