"""What `BertQuestionAnswerer` reads and answers: questions with contexts of any length."""

import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.data.plain_rows import is_container, is_text, plain_rows
from bert_tf.errors import UserError
from bert_tf.models.label_inputs import row_weights
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.text_inputs import TextColumns
from bert_tf.tasks.question_answering.answer_selection import AnswerSelection, select_answers
from bert_tf.tasks.question_answering.context_windows import question_windows, training_windows
from bert_tf.tasks.question_answering.files import report_left_out
from bert_tf.tasks.question_answering.window_batches import WindowBatches


class Answer(NamedTuple):
    """An answer out of a context: `text == context[start:end]`.

    Attributes:
        text: The answer; "" where the context has none.
        start: Its first character in the context, in code points.
        end: The one after its last.
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


class QuestionAnsweringPreprocessor(Preprocessor):
    """Questions and contexts to windows, logits of windows to answers.

    Args:
        doc_stride: As in `BertQuestionAnswerer`.
        max_query_length: As in `BertQuestionAnswerer`.
        n_best_size: As in `BertQuestionAnswerer`.
        max_answer_length: As in `BertQuestionAnswerer`.
        allow_no_answer: As in `BertQuestionAnswerer`.
        null_score_diff_threshold: As in `BertQuestionAnswerer`.
        **options: The arguments of `Preprocessor`.
    """

    texts_per_example = (2,)
    example_form = (
        "A pair (questions, contexts) must be two lists of strings; or pass a list of tuples, "
        "[(question, context), ...]."
    )
    takes_batches_of_text = False

    def __init__(
        self,
        *,
        doc_stride: int,
        max_query_length: int,
        n_best_size: int,
        max_answer_length: int,
        allow_no_answer: bool,
        null_score_diff_threshold: float,
        **options,
    ):
        super().__init__(**options)
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        self.n_best_size = n_best_size
        self.max_answer_length = max_answer_length
        self.allow_no_answer = allow_no_answer
        self.null_score_diff_threshold = null_score_diff_threshold

    def read_columns(self, x):
        """Returns questions and contexts as arrays of strings."""
        empty = not isinstance(x, TextColumns) and is_container(x) and not len(plain_rows(x))
        return super().read_columns(([], []) if empty else x)

    def targets(self, y, x):
        """As `Preprocessor.targets`: for raw text pairs of an answer and its place, or None."""
        if y is not None and isinstance(x, TextColumns):
            return _answers(y)
        return super().targets(y, x)

    def training_rows(self, columns, y, sample_weight):
        """Returns the windows to train on; the examples that are left out are logged."""
        if y is None:
            raise UserError("`y` must be the answers to the questions. Received: y=None")
        questions, contexts = map(_strings, columns)
        windows, targets, left_out = training_windows(
            self.tokenizer, questions, contexts, y, **self.window_lengths()
        )
        report_left_out(left_out, questions, contexts, y)
        weights = None
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, len(questions))
            weights = [sample_weight[window.example] for window in windows]
        rows = WindowBatches(windows, self.tokenizer, targets, weights, self.static_length)
        return rows, rows.labels

    def rows(self, columns, window_stride=None):
        """Returns the windows of the contexts."""
        if window_stride is not None:
            raise UserError(
                "`window_stride` must be None; `doc_stride` is that of question answering. "
                f"Received: window_stride={window_stride!r}"
            )
        self.require_tokenizer()
        windows = question_windows(self.tokenizer, *map(_strings, columns), **self.window_lengths())
        return WindowBatches(windows, self.tokenizer)

    def outputs(self, values, rows, columns, pooling):
        """Returns `logits` `[W, 2, max_length]` of the windows, and their `row_splits`."""
        counts = np.bincount(rows.examples, minlength=columns.num_rows)
        return {"logits": values, "row_splits": np.concatenate([[0], np.cumsum(counts)])}

    def select(self, values, rows: WindowBatches, columns: TextColumns) -> list[AnswerSelection]:
        """Returns the n best answers to each question, and the score of no answer."""
        parts: list[list] = [[] for _ in columns[0]]
        for window, logits in zip(rows.windows, values):
            parts[window.example].append((window, logits))
        return [
            select_answers(
                context,
                *zip(*part),
                n_best_size=self.n_best_size,
                max_answer_length=self.max_answer_length,
                allow_no_answer=self.allow_no_answer,
            )
            for context, part in zip(_strings(columns[1]), parts)
        ]

    def decode(self, values, rows, columns):
        """Returns an `Answer` to each question."""
        threshold = self.null_score_diff_threshold if self.allow_no_answer else None
        chosen = [selection.answer(threshold) for selection in self.select(values, rows, columns)]
        return [Answer(best.text, best.start, best.end, best.probability) for best in chosen]

    def window_lengths(self) -> dict[str, int]:
        """Returns how contexts are cut: the arguments of `question_windows`."""
        return {
            "max_length": self.max_length,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
        }


def _strings(column: Sequence[bytes]) -> list[str]:
    return [text.decode("utf-8", "replace") for text in column]


def _answers(values: Any) -> np.ndarray:
    """Answers as one array of pairs and None, so that Keras's `validation_split` can cut it."""
    values = plain_rows(values, "y")
    rows = np.empty(len(values), object)
    for row, value in enumerate(values):
        pair = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else ()
        is_pair = len(pair) == 2 and is_text(pair[0]) and isinstance(pair[1], numbers.Integral)
        if value is not None and not is_pair:
            raise UserError(
                "An answer must be a pair of its text and its first character, or None. "
                f"Received in row {row}: {value!r}"
            )
        if is_pair:
            text, start = pair
            rows[row] = (text if isinstance(text, str) else text.decode("utf-8")), int(start)
    return rows
