"""Questions and long contexts as windows: `[CLS] question [SEP] part of the context [SEP]`.

A context that does not fit is cut into windows that overlap. A token that stands in several windows
counts in the one that shows most of what is around it, its "max-context" window.

Glossary: `N` questions, `W` windows, `Q` tokens of a question, `C` context tokens of a window, `T`
tokens of a window, Q + C + 3, `P` tokens of a whole context.

Reference: google-research/bert run_squad.py, `convert_examples_to_features`.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from bert_tf.errors import DataError, UserError
from bert_tf.tasks.question_answering.files import GoldAnswer, answer_span

_TEXTS_AT_ONCE = 1000  # tokenized together; more gain no speed
# In the score of a window for a token, the weight of its length against the nearer end.
LENGTH_WEIGHT = 0.01  # google-research/bert run_squad.py, `_check_is_max_context`


@dataclasses.dataclass(frozen=True, eq=False)
class TokenizedText:
    """The tokens of a text and where they stand in it.

    Attributes:
        ids: int32 `[P]`.
        char_starts: int32 `[P]`, first character of each token in the original text.
        char_ends: int32 `[P]`, the one behind its last.
    """

    ids: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray

    def token_span(self, start: int, end: int) -> tuple[int, int] | None:
        """The first and the last token that share characters with `[start, end)`, if any."""
        first = int(np.searchsorted(self.char_ends, start, side="right"))
        last = int(np.searchsorted(self.char_starts, end, side="left")) - 1
        return (first, last) if first <= last else None


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionWindow:
    """A question with one part of its context.

    Attributes:
        example: Which question, counted from 0.
        question: int32 `[Q]`, the question's tokens.
        context: The whole context.
        start: The window's first token, of the context's.
        length: C.
        max_context: bool `[C]`, the tokens that no other window shows better.
    """

    example: int
    question: np.ndarray
    context: TokenizedText
    start: int
    length: int
    max_context: np.ndarray

    @property
    def offset(self) -> int:
        """Where the context stands in the window: behind `[CLS]`, the question and `[SEP]`."""
        return len(self.question) + 2

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.offset + self.length + 1

    def token_ids(self, cls_id: int, sep_id: int) -> np.ndarray:
        """The whole window, int32 `[T]`."""
        part = self.context.ids[self.start : self.start + self.length]
        return np.concatenate([[cls_id], self.question, [sep_id], part, [sep_id]], dtype=np.int32)

    def chars(self, first: int, last: int) -> tuple[int, int]:
        """Where the tokens `first` to `last` of the window stand in the original context."""
        shift = self.start - self.offset
        return int(self.context.char_starts[first + shift]), int(
            self.context.char_ends[last + shift]
        )

    def target(self, span: tuple[int, int] | None) -> tuple[int, int]:
        """An answer's first and last token in the window; (0, 0), `[CLS]`, if it is not all there.

        Args:
            span: Its first and last token in the context; None for no answer.
        """
        if span is None or span[0] < self.start or span[1] >= self.start + self.length:
            return 0, 0
        shift = self.offset - self.start
        return span[0] + shift, span[1] + shift


def tokenize_texts(tokenizer, texts: Sequence[str]) -> dict[str, TokenizedText]:
    """Tokenizes every different text once."""
    different = list(dict.fromkeys(texts))
    tokenized = {}
    with tqdm(total=len(different), desc="tokenizing", unit="text", delay=3, leave=False) as bar:
        for begin in range(0, len(different), _TEXTS_AT_ONCE):
            part = different[begin : begin + _TEXTS_AT_ONCE]
            pieces = tokenizer.tokenize_with_offsets(part)
            splits = pieces.ids.row_splits.numpy()
            columns = [
                values.flat_values.numpy().astype(np.int32)
                for values in (pieces.ids, pieces.char_starts, pieces.char_ends)
            ]
            for text, low, high in zip(part, splits[:-1], splits[1:]):
                tokenized[text] = TokenizedText(*(column[low:high] for column in columns))
            bar.update(len(part))
    return tokenized


def question_windows(
    tokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    max_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> list[QuestionWindow]:
    """Cuts questions and contexts into windows.

    Args:
        tokenizer: A `BertTokenizer`.
        questions: N questions.
        contexts: The context of each.
        max_length: The most tokens of a window, the three special ones counted.
        doc_stride: Tokens from the start of a window to the start of the next (not the overlap).
        max_query_length: Longer questions lose their end.

    Returns:
        The windows, question by question, from the front of the context; at least one each.

    Raises:
        UserError: If there are not as many contexts as questions, or the lengths leave no room.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> windows = bert_tf.tasks.question_answering.question_windows(
        ...     tokenizer, ["Where?"], ["In Paris. " * 300]
        ... )
        >>> [(window.start, window.length) for window in windows][:2]
        [(0, 379), (128, 379)]
    """
    if len(questions) != len(contexts):
        raise UserError(
            "Every question must have its context. "
            f"Received: {len(questions)} questions, {len(contexts)} contexts"
        )
    check_window_lengths(max_length, doc_stride, max_query_length)
    asked = tokenize_texts(tokenizer, questions)
    given = tokenize_texts(tokenizer, contexts)
    windows = []
    for example, (question, context) in enumerate(zip(questions, contexts)):
        question_ids = asked[question].ids[:max_query_length]
        tokens = given[context]
        spans = _window_spans(len(tokens.ids), max_length - len(question_ids) - 3, doc_stride)
        for (start, length), shows_best in zip(spans, _max_context(spans)):
            windows.append(QuestionWindow(example, question_ids, tokens, start, length, shows_best))
    return windows


def training_windows(
    tokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    answers: Sequence[GoldAnswer | None],
    **lengths,
) -> tuple[list[QuestionWindow], np.ndarray, list[int]]:
    """Windows with what they shall learn; questions whose answer is not there are left out.

    Args:
        tokenizer: A `BertTokenizer`.
        questions: N questions.
        contexts: The context of each.
        answers: The answer of each, a `GoldAnswer` or a pair (text, start); None for no answer.
        **lengths: `max_length`, `doc_stride`, `max_query_length` of `question_windows`.

    Returns:
        The windows; int32 `[W, 2]`, the answer's first and last token in each, (0, 0) where it is
        not all in the window; and the numbers of the questions that were left out because their
        context does not have the answer's text at its place.

    Raises:
        DataError: If no question is left.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> windows, targets, left_out = bert_tf.tasks.question_answering.training_windows(
        ...     tokenizer, ["Where?"], ["It is in Paris."], [("Paris", 9)]
        ... )
        >>> targets
        array([[7, 7]], dtype=int32)
    """
    if len(answers) != len(questions):
        raise UserError(
            "Every question must have its answer, or None. "
            f"Received: {len(questions)} questions, {len(answers)} answers"
        )
    windows = question_windows(tokenizer, questions, contexts, **lengths)
    spans, left_out = {}, []
    for window in windows:
        number, answer = window.example, answers[window.example]
        if number in spans:
            continue
        spans[number] = None
        if answer is not None:
            chars = answer_span(contexts[number], GoldAnswer(*answer))
            spans[number] = None if chars is None else window.context.token_span(*chars)
            if spans[number] is None:
                left_out.append(number)
    missing = set(left_out)
    windows = [window for window in windows if window.example not in missing]
    if not windows:
        raise DataError(
            "Answers that stand in their contexts where `answer_start` says were expected. "
            f"Received: none in {len(questions)} questions"
        )
    targets = np.array([window.target(spans[window.example]) for window in windows], np.int32)
    return windows, targets, left_out


def check_window_lengths(max_length: int, doc_stride: int, max_query_length: int) -> None:
    """Whether a window has room for the longest question and a token of the context.

    Raises:
        UserError: If it has not, or a length is below 1.
    """
    if doc_stride < 1 or max_query_length < 1 or max_length < max_query_length + 4:
        raise UserError(
            "`doc_stride` and `max_query_length` must be at least 1, and `max_length` at least "
            "max_query_length + 4: [CLS], two [SEP] and a token of the context. Received: "
            f"max_length={max_length}, doc_stride={doc_stride}, "
            f"max_query_length={max_query_length}"
        )


def _window_spans(num_tokens, room, doc_stride):
    """Start and length of the windows over a context."""
    spans = [(0, min(num_tokens, room))]
    while sum(spans[-1]) < num_tokens:
        # Matches google-research/bert: a step beyond the window would leave tokens out.
        start = spans[-1][0] + min(spans[-1][1], doc_stride)
        spans.append((start, min(num_tokens - start, room)))
    return spans


def _max_context(spans):
    """For each window, bool `[C]`: whether it is the best one for the token; the first of equals.

    The score of a window for a token is the smaller number of context tokens to its left and right.
    """
    num_tokens = sum(spans[-1])
    best = np.full(num_tokens, -1.0)
    owner = np.zeros(num_tokens, np.int32)
    for number, (start, length) in enumerate(spans):
        places = np.arange(length)
        scores = np.minimum(places, length - 1 - places) + LENGTH_WEIGHT * length
        here = slice(start, start + length)
        better = scores > best[here]
        best[here] = np.where(better, scores, best[here])
        owner[here] = np.where(better, number, owner[here])
    return [owner[start : start + length] == n for n, (start, length) in enumerate(spans)]
