"""Question answering: which part of a context answers a question."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import PADDING_LOGIT
from bert_tf.errors import check_limits
from bert_tf.inputs.columns import is_text
from bert_tf.inputs.labels import are_labels_of_tokens, check_ids
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.tasks.question_answering.preprocessor import Answer, AnswerSelection, strings
from bert_tf.tasks.question_answering.serving import QuestionAnsweringModule
from bert_tf.tasks.question_answering.windows import check_window_lengths
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.training.traced_steps import is_one_request, predict_rows

MAX_QUERY_LENGTH = 64  # google-research/bert run_squad.py


@keras.saving.register_keras_serializable(package="bert_tf")
class BertQuestionAnswerer(DenseHeadModel):
    """BERT with a classifier of each token as the answer's first and as its last.

    A long context is read in overlapping windows; the best span of all windows is cut out of the
    original text. `fit` takes raw text: `((questions, contexts), answers)`. An answer is a pair of
    its text and the position of its first character, or None. Questions whose answer is not at that
    position are skipped and logged.

    Args:
        backbone, tokenizer: See `TaskModel`.
        allow_no_answer: Whether a context may have no answer, as in SQuAD 2.0.
        null_score_diff_threshold: No answer is given if its score is above that of the best span by
            more than this.
        doc_stride: Tokens from the start of a window to the start of the next (not the overlap).
        max_query_length: Longer questions are truncated; None means 64, or half of `max_length` if
            that is less.
        n_best_size: The maximum number of candidates to keep.
        max_answer_length: The maximum number of tokens of an answer.
        max_length: The maximum number of tokens of a window; see `TaskModel` for None.
        lstm_units: The units of a `bert_tf.layers.StackedLSTM` between the encoder and the
            classifier, or a list with those of several layers. None means no LSTM.
        lstm_bidirectional: Whether the LSTM reads in both directions.

    Returns:
        Logits float32 `[B, 2, T]` for the first and the last token of the answer. On token
        dictionaries `fit` takes the columns of these tokens, int `[B, 2]`. The column of `[CLS]`
        twice means no answer: (0, 0), unless there is padding before it. The loss is the mean of
        both cross-entropies.

    Raises:
        UserError: If a window has no room for the longest question and a token of the context,
            a number is below 1, or `lstm_units` are not positive integers.

    Example:
        >>> model = bert_tf.BertQuestionAnswerer.from_pretrained("bert-base/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-2, bias_correction=True))
        >>> model.fit((["Where is it?"], ["It is in Paris."]), [("Paris", 9)], epochs=10)
        >>> model.answer("Where is it?", "It is in Paris.")
        Answer(text='Paris', start=9, end=14, score=0...)

    Reference: Devlin et al. 2019, sections 4.2 and 4.3; google-research/bert run_squad.py.
    """

    doc_stride = Held()
    max_query_length = Held()
    n_best_size = Held()
    max_answer_length = Held()
    allow_no_answer = Held()
    null_score_diff_threshold = Held()

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
        lstm_units: int | Sequence[int] | None = None,
        lstm_bidirectional: bool = True,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.allow_no_answer = allow_no_answer
        self.null_score_diff_threshold = null_score_diff_threshold
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        if self.max_query_length is None:
            self.max_query_length = min(MAX_QUERY_LENGTH, self.max_sequence_length // 2)
        self.n_best_size = n_best_size
        self.max_answer_length = max_answer_length
        self.check_options()
        self.add_lstm(lstm_units, lstm_bidirectional)
        self.uses_pooler = self.pools_tokens
        self.span_classifier = self.dense_head(2, "span_classifier", example_shape=(2, 2, 4))
        self.built = True

    def check_options(self):
        super().check_options()
        separators = 1 if self.tokenizer is None else self.tokenizer.separators
        check_window_lengths(
            self.max_sequence_length, self.doc_stride, self.max_query_length, separators
        )
        check_limits(n_best_size=self.n_best_size, max_answer_length=self.max_answer_length)

    def read_labels(self, y, x):
        y = super().read_labels(y, x)
        if are_labels_of_tokens(y, x) and self.has_sparse_labels:
            check_ids(y, np.shape(x["token_ids"])[-1], "Columns of answers")
        return y

    def head(self, outputs, tokens, training=False):
        logits = self.token_logits(self.token_states(outputs, tokens))
        logits = tf.transpose(logits, [0, 2, 1])  # [B, T, 2] -> [B, 2, T]
        real = self.backbone.padding_mask_of(tokens)[:, tf.newaxis]  # [B, T] -> [B, 1, T]
        return tf.where(real, logits, PADDING_LOGIT)

    # Weights are of rows [B], losses of both ends [B, 2].
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y, y_pred, _per_row(sample_weight), training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred, _per_row(sample_weight))

    def answer(
        self,
        questions: str | Sequence[str],
        contexts: str | Sequence[str],
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> Answer | list[Answer]:
        """Finds the answers to questions in contexts of any length.

        Args:
            questions, contexts: N questions with the context of each, or one.
            batch_size: The maximum number of windows of a batch.
            token_budget, verbose: See `predict`.

        Returns:
            An `Answer` for each question; for one question as a string, its answer.

        Raises:
            UserError: If there is no tokenizer, or not one context for each question.
            DataError: If a text is missing or malformed.
        """
        found = self.select(questions, contexts, batch_size, token_budget, verbose)
        answers = [selection.answer for selection in found]
        return answers[0] if is_text(questions) else answers

    def select(
        self,
        questions: str | Sequence[str],
        contexts: str | Sequence[str],
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> list[AnswerSelection]:
        """Returns the n best answers and the score of no answer, from which `answer` chooses."""
        preprocessor = self.preprocessor
        columns = preprocessor.read_examples((questions, contexts))
        if columns.num_rows == 1 and is_one_request(self, batch_size, token_budget, verbose):
            pair = (strings(column)[0] for column in columns)
            return preprocessor.selections(QuestionAnsweringModule(self).call("selection", pair))
        rows = preprocessor.encode(columns)
        values = predict_rows(self, rows, batch_size, verbose, token_budget=token_budget)
        return preprocessor.select(values, rows, columns)

    def window_lengths(self) -> dict[str, int]:
        """Returns the arguments of `QuestionWindows` that say how contexts are cut."""
        return self.preprocessor.window_lengths()


def _per_row(weights):
    return None if weights is None else tf.reshape(weights, [-1, 1])
