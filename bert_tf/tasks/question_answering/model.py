"""Question answering: where in a context the answer to a question stands."""

import numbers
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import is_container, is_text, plain_rows
from bert_tf.errors import UserError
from bert_tf.layers.dense import Dense
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.label_inputs import row_weights
from bert_tf.models.task_model import DEFAULT_BATCH_SIZE, TaskModel
from bert_tf.models.text_batches import TOKEN_BUDGET
from bert_tf.models.text_inputs import TextColumns
from bert_tf.models.text_streams import refuse_steps
from bert_tf.tasks.question_answering.answer_selection import AnswerSelection, select_answers
from bert_tf.tasks.question_answering.context_windows import (
    check_window_lengths,
    question_windows,
    training_windows,
)
from bert_tf.tasks.question_answering.files import report_left_out
from bert_tf.tasks.question_answering.window_batches import WindowBatches
from bert_tf.training.losses.class_weights import refuse_class_weight
from bert_tf.training.losses.sparse_crossentropy import PADDING_LOGIT, refuse_class_weights

MAX_QUERY_LENGTH = 64  # google-research/bert run_squad.py


class Answer(NamedTuple):
    """An answer out of a context: `text == context[start:end]`.

    Attributes:
        text: The answer; "" where the context has none.
        start: Its first character in the context, in code points.
        end: The one behind its last.
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


@keras.saving.register_keras_serializable(package="bert_tf")
class BertQuestionAnswerer(TaskModel):
    """BERT with a classifier of each token as the answer's first and as its last.

    A context that is too long is read in windows that overlap; the best span of all windows is cut
    out of the original text.

    `fit` takes raw text: `((questions, contexts), answers)`, an answer being a pair of its text and
    its first character, or None. Questions whose answer does not stand there are left out and told
    in the log. `predict((questions, contexts))` gives what `answer` gives.

    Args:
        backbone: The `BertBackbone`.
        allow_no_answer: Whether a context may have no answer, as in SQuAD 2.0.
        null_score_diff_threshold: No answer is given if its score is above that of the best span by
            more than this.
        doc_stride: Tokens from the start of a window to the start of the next (not the overlap).
        max_query_length: Longer questions lose their end; None takes 64, or half of `max_length` if
            that is less.
        n_best_size: Starts and ends to look at in a window, and candidates to keep.
        max_answer_length: The most tokens of an answer.
        tokenizer: The `BertTokenizer`.
        max_length: The most tokens of a window; None means the length of the position table.

    Call arguments:
        inputs: What the backbone takes.

    Returns:
        Logits float32 `[B, 2, T]`: of the answer's first token, and of its last. On token
        dictionaries `fit` takes the two tokens' positions as labels, int `[B, 2]`; (0, 0) is no
        answer. The loss is the mean of both cross-entropies.

    Example:
        >>> model = bert_tf.BertQuestionAnswerer.from_pretrained("bert-base/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-2, bias_correction=True))
        >>> model.fit((["Where is it?"], ["It is in Paris."]), [("Paris", 9)], epochs=10)
        >>> model.answer("Where is it?", "It is in Paris.")
        Answer(text='Paris', start=9, end=14, score=0...)

    Reference: Devlin et al. 2019, sections 4.2 and 4.3; google-research/bert run_squad.py.
    """

    texts_per_example = (2,)
    example_form = (
        "A pair (questions, contexts) must be two lists of strings; or pass a list of tuples, "
        "[(question, context), ...]."
    )
    takes_batches_of_text = False

    def __init__(
        self,
        backbone: BertBackbone,
        allow_no_answer: bool = False,
        null_score_diff_threshold: float = 0.0,
        doc_stride: int = 128,
        max_query_length: int | None = None,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        if max_query_length is None:
            max_query_length = min(MAX_QUERY_LENGTH, self._longest() // 2)
        check_window_lengths(self._longest(), doc_stride, max_query_length)
        if n_best_size < 1 or max_answer_length < 1:
            raise UserError(
                "`n_best_size` and `max_answer_length` must be at least 1. Received: "
                f"n_best_size={n_best_size}, max_answer_length={max_answer_length}"
            )
        self.allow_no_answer = allow_no_answer
        self.null_score_diff_threshold = null_score_diff_threshold
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        self.n_best_size = n_best_size
        self.max_answer_length = max_answer_length
        backbone.pooler.trainable = False  # no part of the loss
        self.span_classifier = Dense(
            2, backbone.config.initializer_range, dtype=self.dtype_policy, name="span_classifier"
        )
        self.build()

    def build(self, input_shape=None):
        if not self.span_classifier.built:
            self.span_classifier.build([None, self.backbone.config.hidden_size])
        self.built = True

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """`keras.Model.compile`; the loss defaults to cross-entropy on the two positions.

        `bert_tf.training.SparseCrossentropy` smooths the labels over the tokens that are not
        padding, and focuses on hard questions.

        Raises:
            UserError: For class weights: positions are no classes.
        """
        refuse_class_weights(loss, "the tokens of a window")
        if loss == "auto":
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        states = self.backbone(tokens, training=training)["sequence_output"]  # [B, T, H]
        batch, length = tf.shape(states)[0], tf.shape(states)[1]
        rows = tf.reshape(states, [-1, states.shape[-1]])  # [B, T, H] -> [B * T, H]
        logits = tf.cast(self.span_classifier(rows), tf.float32)
        logits = tf.reshape(logits, [batch, length, 2])  # [B * T, 2] -> [B, T, 2]
        logits = tf.transpose(logits, [0, 2, 1])  # [B, T, 2] -> [B, 2, T]
        real = self.backbone.padding_mask_of(tokens)[:, tf.newaxis]  # [B, T] -> [B, 1, T]
        return tf.where(real, logits, PADDING_LOGIT)

    # Weights are of rows [B], losses of both ends [B, 2].
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y, y_pred, _per_row(sample_weight), training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred, _per_row(sample_weight))

    def class_weights(self, class_weight):
        refuse_class_weight(class_weight, "labels are positions, not classes")

    def predict_step(self, data):
        outputs = super().predict_step(data)
        if not isinstance(outputs, tuple):
            return outputs
        logits, index = outputs  # of windows: batches of several lengths become one array
        missing = self._longest() - tf.shape(logits)[-1]
        return tf.pad(logits, [[0, 0], [0, 0], [0, missing]], constant_values=PADDING_LOGIT), index

    def answer(
        self,
        questions: str | Sequence[str],
        contexts: str | Sequence[str],
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> Answer | list[Answer]:
        """Answers questions out of contexts of any length.

        Args:
            questions: N questions, or one.
            contexts: The context of each.
            batch_size: The most windows of a batch.
            token_budget: The most tokens of a batch, padding counted; default 4,096.
            verbose: As in Keras's `predict`.

        Returns:
            An `Answer` for each question; for one question as a string, its answer.
        """
        columns = self.read_columns((questions, contexts))
        selections = self.select(*columns, batch_size, token_budget, verbose)
        threshold = self.null_score_diff_threshold if self.allow_no_answer else None
        answers = []
        for selection in selections:
            best = selection.answer(threshold)
            answers.append(Answer(best.text, best.start, best.end, best.probability))
        return answers[0] if is_text(questions) else answers

    def select(
        self,
        questions: str | Sequence[str],
        contexts: str | Sequence[str],
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> list[AnswerSelection]:
        """What `answer` chooses from: for each question the n best, and the score of no answer."""
        self._require_tokenizer()
        questions, contexts = self._strings(questions, contexts)
        windows = question_windows(self.tokenizer, questions, contexts, **self.window_lengths())
        if not windows:
            return []
        if self.jit_compile:  # XLA compiles every shape of a batch
            batch_size = batch_size or max(1, TOKEN_BUDGET // self._longest())
        if batch_size is not None:
            token_budget = batch_size * self._longest()
        batches = self._batches(windows).by_length(token_budget or TOKEN_BUDGET, batch_size)
        logits, order = super().predict(batches, verbose=verbose)
        parts = [[] for _ in questions]
        for row, number in enumerate(np.argsort(order)):
            window = windows[row]
            parts[window.example].append((window, logits[number]))
        return [
            select_answers(
                context,
                *zip(*part),
                n_best_size=self.n_best_size,
                max_answer_length=self.max_answer_length,
                allow_no_answer=self.allow_no_answer,
            )
            for context, part in zip(contexts, parts)
        ]

    def training_batches(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        answers: Sequence,
        sample_weight: Sequence[float] | None = None,
    ) -> WindowBatches:
        """The windows that `fit` learns from; what is left out of them is told in the log.

        Args:
            questions: N questions.
            contexts: The context of each.
            answers: The answer of each: a pair of its text and its first character, or None.
            sample_weight: The weight of each in the loss.
        """
        self._require_tokenizer()
        questions, contexts = self._strings(questions, contexts)
        answers = _answers(answers)
        windows, targets, left_out = training_windows(
            self.tokenizer, questions, contexts, answers, **self.window_lengths()
        )
        report_left_out(left_out, questions, contexts, answers)
        weights = None
        if sample_weight is not None:
            sample_weight = row_weights(sample_weight, len(questions))
            weights = [sample_weight[window.example] for window in windows]
        return self._batches(windows, targets, weights)

    def predict(
        self,
        x,
        batch_size=None,
        verbose="auto",
        steps=None,
        callbacks=None,
        *,
        token_budget: int | None = None,
    ):
        """`keras.Model.predict`; for raw text, `(questions, contexts)`, what `answer` gives."""
        x = self.raw(x)
        if not isinstance(x, TextColumns):
            return super().predict(
                x, batch_size, verbose, steps, callbacks, token_budget=token_budget
            )
        refuse_steps(steps, callbacks)
        verbose = 0 if verbose == "auto" else verbose
        if x.is_single:
            x = [column[0] for column in x]
        return self.answer(*x, batch_size, token_budget, verbose)

    def read_columns(self, x):
        """Questions and contexts as arrays of strings."""
        empty = not isinstance(x, TextColumns) and is_container(x) and not len(plain_rows(x))
        return super().read_columns(([], []) if empty else x)

    def plain_targets(self, y, x):
        """As `TaskModel.plain_targets`: for raw text pairs of an answer and its place, or None."""
        if y is not None and isinstance(x, TextColumns):
            return _answers(y)
        return super().plain_targets(y, x)

    def _prepare(self, x, y, sample_weight, batch_size, shuffle, training):
        if not isinstance(x, TextColumns):
            return super()._prepare(x, y, sample_weight, batch_size, shuffle, training)
        if y is None:
            raise UserError("Answers were expected with questions and contexts. Received: y=None")
        batches = self.training_batches(*x, y, sample_weight)
        make = batches.shuffled if shuffle else batches.in_order
        dataset = make(batch_size or DEFAULT_BATCH_SIZE)
        return {"x": dataset, "y": None, "sample_weight": None, "batch_size": None}

    def _batches(self, windows, targets=None, weights=None):
        length = self._longest() if self.jit_compile else None
        return WindowBatches(windows, self.tokenizer, targets, weights, length)

    def _strings(self, questions, contexts):
        """Questions and contexts as lists of `str`, whatever they came as."""
        columns = self.read_columns((questions, contexts))
        return tuple([text.decode("utf-8", "replace") for text in column] for column in columns)

    def window_lengths(self) -> dict[str, int]:
        """How contexts are cut: the arguments of `data.question_windows`."""
        return {
            "max_length": self._longest(),
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
        }

    def get_config(self):
        return {
            **super().get_config(),
            "allow_no_answer": self.allow_no_answer,
            "null_score_diff_threshold": self.null_score_diff_threshold,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
            "n_best_size": self.n_best_size,
            "max_answer_length": self.max_answer_length,
        }


def _per_row(weights):
    return None if weights is None else tf.reshape(weights, [-1, 1])


def _answers(values):
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
