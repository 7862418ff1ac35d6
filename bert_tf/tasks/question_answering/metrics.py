"""Exact match and F1 of SQuAD, as in the official evaluation scripts.

Reference: evaluate-v1.1.py and evaluate-v2.0.py of https://rajpurkar.github.io/SQuAD-explorer/.
"""

import collections
import re
import string
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.tasks.question_answering.files import SquadExample
from bert_tf.training.evaluation.scores import drawn_intervals

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lowercases a text, removes ASCII punctuation and articles, and joins words with one space.

    Example:
        >>> normalize_answer("The  U.S. of  America")
        'us of america'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """Returns 1.0 if the normalized texts are equal, otherwise 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def word_f1(prediction: str, gold: str, version_2: bool = False) -> float:
    """Computes F1 over the normalized words.

    The F1 of two texts without words is 1 with `version_2` (SQuAD 2.0), otherwise 0 (1.1).
    """
    predicted, true = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if version_2 and not (predicted and true):
        return float(predicted == true)
    common = sum((collections.Counter(predicted) & collections.Counter(true)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(true)
    return 2 * precision * recall / (precision + recall)


def squad_scores(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], version_2: bool = False
) -> dict[str, float]:
    """Computes exact match and F1 in percent. If a question has several answers, the best counts.

    Args:
        examples: The questions with their answers.
        predictions: The text for each id; "" means no answer in SQuAD 2.0. A question without a
            prediction is wrong (as in evaluate-v1.1.py; evaluate-v2.0.py ignores it).
        version_2: Whether to use the rules of SQuAD 2.0.

    Returns:
        `exact_match`, `f1` and `total` for 1.1. For 2.0, `exact`, `f1` and `total`, and the same
        with `HasAns_` and `NoAns_` for the questions with and without answers.

    Raises:
        UserError: If the answers of the examples are not known.

    Example:
        >>> from bert_tf.tasks.question_answering import GoldAnswer, SquadExample
        >>> examples = [
        ...     SquadExample("q1", "Where?", "In Paris.", (GoldAnswer("Paris", 3),)),
        ...     SquadExample("q2", "What river?", "The Seine.", (GoldAnswer("Seine", 4),)),
        ... ]
        >>> squad_scores(examples, {"q1": "Paris", "q2": "the river Seine"})
        {'exact_match': 50.0, 'f1': 83.33..., 'total': 2}
    """
    scores = question_scores(examples, predictions, version_2)
    return _means(*scores, _answerable(examples), version_2)


def squad_intervals(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    version_2: bool = False,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Computes bootstrap intervals over questions for the scores of `squad_scores`.

    Questions about the same context are drawn independently.

    Args:
        examples, predictions, version_2: See `squad_scores`.
        samples, confidence, seed: See `bert_tf.training.evaluation.scores.drawn_intervals`.

    Returns:
        The intervals (low, high) in percent by the name of the score.

    Raises:
        UserError: If the answers of the examples are not known, or if `samples` or `confidence` is
            out of range.

    Example:
        >>> from bert_tf.tasks.question_answering import GoldAnswer, SquadExample
        >>> example = SquadExample("q1", "Where?", "In Paris.", (GoldAnswer("Paris", 3),))
        >>> squad_intervals([example], {"q1": "Paris"})
        {'exact_match': (100.0, 100.0), 'f1': (100.0, 100.0)}
    """
    scores = squad_score_rows(examples, [predictions], version_2)
    return drawn_intervals(scores, len(examples), samples, confidence, seed)


def squad_score_rows(
    examples: Sequence[SquadExample], systems: Sequence[Mapping[str, str]], version_2: bool = False
) -> Callable[[np.ndarray], dict[str, float]]:
    """Returns a function from indices of questions to the scores of `squad_scores` but the totals.

    `systems` are the predictions of one or more systems; with n questions, the indices
    `[n, 2n)` are those of the second system.
    """
    sides = [question_scores(examples, predictions, version_2) for predictions in systems]
    answerable = np.tile(_answerable(examples), len(systems))
    columns = *map(np.concatenate, zip(*sides)), answerable

    def scores(rows):
        means = _means(*(column[rows] for column in columns), version_2)
        return {name: value for name, value in means.items() if not name.endswith("total")}

    return scores


def best_null_thresholds(
    examples: Sequence[SquadExample], texts: Mapping[str, str], differences: Mapping[str, float]
) -> dict[str, float]:
    """Finds the best thresholds for the score difference above which there is no answer.

    Args:
        examples: The questions of SQuAD 2.0 with their answers.
        texts, differences: For each id, the best answer with a text, and the score of no answer
            minus that of this text (`null_odds.json`).

    Returns:
        `best_exact`, `best_exact_thresh`, `best_f1` and `best_f1_thresh`: the smallest of the best.
        Unlike in evaluate-v2.0.py, they are also correct if differences are equal or if no answer
        to all questions is best.

    Raises:
        UserError: If the answers of the examples are not known.

    Example:
        >>> from bert_tf.tasks.question_answering import GoldAnswer, SquadExample
        >>> examples = [
        ...     SquadExample("q1", "Where?", "In Paris.", (GoldAnswer("Paris", 3),)),
        ...     SquadExample("q2", "Why?", "In Paris.", ()),
        ... ]
        >>> texts, differences = {"q1": "Paris", "q2": "in"}, {"q1": -2.0, "q2": 1.5}
        >>> best = best_null_thresholds(examples, texts, differences)
        >>> best["best_f1"], best["best_f1_thresh"]
        (100.0, -2.0)
    """
    results = {}
    values = np.array([differences[example.id] for example in examples])
    order = np.argsort(values, kind="stable")
    values = values[order]
    possible = np.concatenate([[True], values[1:] > values[:-1], [True]])
    # Questions up to the threshold keep their text; the others have no answer.
    unanswerable = np.concatenate([[0.0], np.cumsum(~_answerable(examples)[order])])
    without = unanswerable[-1] - unanswerable
    for name, scores in zip(("exact", "f1"), question_scores(examples, texts, version_2=True)):
        with_text = np.concatenate([[0.0], np.cumsum(scores[order])])
        totals = np.where(possible, with_text + without, -1.0)
        kept = int(np.argmax(totals))
        threshold = values[kept - 1] if kept else values[0] - 1.0
        results[f"best_{name}"] = float(100.0 * totals[kept] / len(examples))
        results[f"best_{name}_thresh"] = float(threshold)
    return results


def question_scores(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], version_2: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Returns exact match and F1 of each question, float64 `[n]`, 0 to 1; see `squad_scores`."""
    if not examples or not all(example.has_answers for example in examples):
        raise UserError(
            "`examples` must be questions with answers. Received: "
            f"{sum(not example.has_answers for example in examples)} of {len(examples)} without"
        )
    exact, f1 = np.zeros(len(examples)), np.zeros(len(examples))
    for row, example in enumerate(examples):
        prediction = predictions.get(example.id)
        if prediction is None:
            continue
        answers = [answer.text for answer in example.answers]
        if version_2:  # as in evaluate-v2.0.py, "" is the answer if there is no other one
            answers = [text for text in answers if normalize_answer(text)] or [""]
        exact[row] = max((exact_match(prediction, answer) for answer in answers), default=0.0)
        f1[row] = max((word_f1(prediction, answer, version_2) for answer in answers), default=0.0)
    return exact, f1


def _means(exact, f1, answerable, version_2):
    if not version_2:
        return {"exact_match": _percent(exact), "f1": _percent(f1), "total": len(exact)}
    results = {}
    groups = {"": np.ones(len(exact), bool), "HasAns_": answerable, "NoAns_": ~answerable}
    for prefix, rows in groups.items():
        if rows.any():
            results[f"{prefix}exact"] = _percent(exact[rows])
            results[f"{prefix}f1"] = _percent(f1[rows])
            results[f"{prefix}total"] = int(rows.sum())
    return results


def _answerable(examples):
    return np.array([bool(example.answers) for example in examples])


def _percent(scores):
    return 100.0 * float(scores.mean())
