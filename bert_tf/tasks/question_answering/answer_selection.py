"""From logits to answers: the n best spans, the score of no answer, the text out of the context.

Glossary: `T` tokens of a window.

Reference: google-research/bert run_squad.py, `write_predictions`. The text of an answer is cut out
of the original context by the offsets of its tokens, where the original aligned strings.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from bert_tf.tasks.question_answering.context_windows import QuestionWindow


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A possible answer.

    Attributes:
        text: A piece of the context; "" for no answer.
        start: Its first character in the context.
        end: The one behind its last.
        start_logit: The logit of its first token.
        end_logit: The logit of its last token.
        probability: Softmax of the sum of both, over the n best.
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float
    probability: float = 0.0

    @property
    def score(self) -> float:
        """The sum of the logits."""
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True)
class AnswerSelection:
    """The answers to one question, best first.

    Attributes:
        n_best: The candidates, no text twice; with no answer among them where that is allowed.
        best: The best one that has a text; None if no span is possible.
        null_score: The score of no answer, the smallest over the windows.
    """

    n_best: tuple[Candidate, ...]
    best: Candidate | None
    null_score: float

    @property
    def score_difference(self) -> float:
        """How much better no answer is than the best span (than a span of score 0 if none)."""
        return self.null_score - (self.best.score if self.best is not None else 0.0)

    def answer(self, null_score_diff_threshold: float | None) -> Candidate:
        """The answer; no answer if that is better than the best span by more than the threshold.

        Args:
            null_score_diff_threshold: None where every question has an answer.
        """
        allowed = null_score_diff_threshold is not None
        if self.best is None or (allowed and self.score_difference > null_score_diff_threshold):
            return next(candidate for candidate in self.n_best if not candidate.text)
        return self.best


def select_answers(
    context: str,
    windows: Sequence[QuestionWindow],
    logits: Sequence[np.ndarray],
    n_best_size: int = 20,
    max_answer_length: int = 30,
    allow_no_answer: bool = False,
) -> AnswerSelection:
    """Picks the answers to one question out of all its windows.

    A span counts if it lies in the context, starts where its window is the max-context one, and has
    at most `max_answer_length` tokens.

    Args:
        context: The original context.
        windows: Its windows.
        logits: For each window float `[2, T]` (longer rows are cut): of the first token and of the
            last.
        n_best_size: Starts and ends to look at in a window, and candidates to keep.
        max_answer_length: The most tokens of an answer.
        allow_no_answer: Whether no answer, both logits at `[CLS]`, is a candidate.

    Returns:
        The `AnswerSelection`.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> context = "It is in Paris."  # [CLS] where ? [SEP] it is in paris . [SEP]
        >>> windows = bert_tf.tasks.question_answering.question_windows(
        ...     tokenizer, ["Where?"], [context]
        ... )
        >>> logits = np.zeros([2, 10])
        >>> logits[:, 7] = 5.0
        >>> bert_tf.tasks.question_answering.select_answers(context, windows, [logits]).best.text
        'Paris'
    """
    logits = [
        np.asarray(values, np.float64)[:, : window.num_tokens]
        for window, values in zip(windows, logits)
    ]
    null = min(logits, key=lambda values: values[0, 0] + values[1, 0])[:, 0]
    no_answer = Candidate("", 0, 0, float(null[0]), float(null[1]))
    spans = np.concatenate(
        [
            _spans(number, window, values, n_best_size, max_answer_length)
            for number, (window, values) in enumerate(zip(windows, logits))
        ]
    )
    spans = spans[np.argsort(-(spans["start_logit"] + spans["end_logit"]), kind="stable")]
    found = {}
    for span in spans:
        if len(found) >= n_best_size:
            break
        start, end = windows[span["window"]].chars(span["first"], span["last"])
        candidate = Candidate(
            context[start:end], start, end, float(span["start_logit"]), float(span["end_logit"])
        )
        found.setdefault(candidate.text, candidate)
    n_best = list(found.values())
    best = n_best[0] if n_best else None
    if allow_no_answer:
        n_best = _with_no_answer(n_best, no_answer, n_best_size)
    elif not n_best:
        n_best = [Candidate("", 0, 0, 0.0, 0.0)]
    scores = np.array([candidate.score for candidate in n_best])
    total = scores.max() + np.log(np.exp(scores - scores.max()).sum())

    def rated(candidate):
        return dataclasses.replace(candidate, probability=math.exp(candidate.score - total))

    best = None if best is None else rated(best)
    return AnswerSelection(tuple(map(rated, n_best)), best, no_answer.score)


_SPAN = np.dtype(
    [("window", "i4"), ("first", "i4"), ("last", "i4"), ("start_logit", "f8"), ("end_logit", "f8")]
)


def _spans(number, window, logits, n_best_size, max_answer_length):
    """The possible spans of a window among its best starts and ends, best starts first."""
    # Matches google-research/bert: the best of all tokens, those of the question too.
    starts, ends = (np.argsort(-row, kind="stable")[:n_best_size] for row in logits)
    context = np.zeros(window.num_tokens, bool)
    context[window.offset : -1] = True
    startable = np.zeros(window.num_tokens, bool)
    startable[window.offset : -1] = window.max_context
    first, last = (grid.ravel() for grid in np.meshgrid(starts, ends, indexing="ij"))
    length = last - first + 1
    kept = startable[first] & context[last] & (length >= 1) & (length <= max_answer_length)
    spans = np.empty(np.count_nonzero(kept), _SPAN)
    spans["window"], spans["first"], spans["last"] = number, first[kept], last[kept]
    spans["start_logit"] = logits[0, spans["first"]]
    spans["end_logit"] = logits[1, spans["last"]]
    return spans


def _with_no_answer(n_best, no_answer, n_best_size):
    """Puts no answer where its score belongs; it is kept even if others leave it no place."""
    before = [candidate for candidate in n_best if candidate.score >= no_answer.score]
    if len(before) == n_best_size:
        return before + [no_answer]
    return (before + [no_answer] + n_best[len(before) :])[:n_best_size]
