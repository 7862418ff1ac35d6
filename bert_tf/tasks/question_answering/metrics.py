"""Exact match and F1 of SQuAD, by the rules of the official evaluation scripts.

Reference: evaluate-v1.1.py and evaluate-v2.0.py of https://rajpurkar.github.io/SQuAD-explorer/.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError
from bert_tf.tasks.question_answering.files import SquadExample
from bert_tf.training.evaluation.bootstrap import drawn_intervals

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lowers the text, takes out ASCII punctuation and the articles, joins words by one space.

    Example:
        >>> normalize_answer("The  U.S. of  America")
        'us of america'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """1.0 if the normalized texts are equal, else 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def word_f1(prediction: str, gold: str, version_2: bool = False) -> float:
    """F1 over the normalized words, as often as they occur.

    Args:
        prediction: The predicted answer.
        gold: A true answer.
        version_2: Whether two texts without words are equal, as in SQuAD 2.0; in 1.1 their F1 is 0.
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
    """Exact match and F1 of predictions, in percent; of several true answers the best one counts.

    Args:
        examples: The questions with their answers.
        predictions: The text for each id; in SQuAD 2.0 "" is no answer. A question without one
            counts as wrong (by evaluate-v1.1.py; evaluate-v2.0.py would leave it out).
        version_2: Whether the rules are those of SQuAD 2.0.

    Returns:
        For 1.1 `exact_match`, `f1`, `total`; for 2.0 `exact`, `f1`, `total` and the same three
        with `HasAns_` and `NoAns_` for the questions with and without answers, if any.

    Raises:
        UserError: If the examples have no answers to compare with.

    Example:
        >>> from bert_tf.tasks.question_answering import GoldAnswer, SquadExample
        >>> examples = [
        ...     SquadExample("q1", "Where?", "In Paris.", (GoldAnswer("Paris", 3),)),
        ...     SquadExample("q2", "What river?", "The Seine.", (GoldAnswer("Seine", 4),)),
        ... ]
        >>> squad_scores(examples, {"q1": "Paris", "q2": "the river Seine"})
        {'exact_match': 50.0, 'f1': 83.33..., 'total': 2}
    """
    exact, f1 = question_scores(examples, predictions, version_2)
    return _means(exact, f1, _answerable(examples), version_2)


def squad_intervals(
    examples: Sequence[SquadExample],
    predictions: Mapping[str, str],
    version_2: bool = False,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Bootstrap intervals over questions of the scores of `squad_scores`, without the totals.

    Questions about one context are drawn as if they were independent.

    Args:
        examples: As in `squad_scores`.
        predictions: As in `squad_scores`.
        version_2: As in `squad_scores`.
        samples: As in `drawn_intervals`.
        confidence: As in `drawn_intervals`.
        seed: As in `drawn_intervals`.

    Returns:
        Name to (low, high), in percent.

    Raises:
        UserError: If the examples have no answers to compare with.

    Example:
        >>> from bert_tf.tasks.question_answering import GoldAnswer, SquadExample
        >>> example = SquadExample("q1", "Where?", "In Paris.", (GoldAnswer("Paris", 3),))
        >>> squad_intervals([example], {"q1": "Paris"})
        {'exact_match': (100.0, 100.0), 'f1': (100.0, 100.0)}
    """
    exact, f1 = question_scores(examples, predictions, version_2)
    answerable = _answerable(examples)

    def scores(rows):
        means = _means(exact[rows], f1[rows], answerable[rows], version_2)
        return {name: value for name, value in means.items() if not name.endswith("total")}

    return drawn_intervals(scores, len(exact), samples, confidence, seed)


def best_null_thresholds(
    examples: Sequence[SquadExample], texts: Mapping[str, str], differences: Mapping[str, float]
) -> dict[str, float]:
    """Searches the threshold on the score difference of no answer with the best result.

    The rule is that of prediction: no answer where the difference is above the threshold.

    Args:
        examples: The questions of SQuAD 2.0 with their answers.
        texts: For each id the best answer that has a text.
        differences: For each id the score of no answer minus that of this text (`null_odds.json`).

    Returns:
        `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh`; of equally good thresholds
        the smallest. As in evaluate-v2.0.py, but that the threshold found really gives the score
        where differences are equal, or where no answer to all is best.

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
    answerable = _answerable(examples)
    values = np.array([differences[example.id] for example in examples])
    order = np.argsort(values, kind="stable")
    values = values[order]
    for name, scores in zip(("exact", "f1"), question_scores(examples, texts, version_2=True)):
        # Questions keep their text up to the threshold; the others have no answer.
        with_text = np.concatenate([[0.0], np.cumsum(scores[order])])
        without = (~answerable[order]).sum() - np.concatenate(
            [[0.0], np.cumsum(~answerable[order])]
        )
        possible = np.concatenate([[True], values[1:] > values[:-1], [True]])
        totals = np.where(possible, with_text + without, -1.0)
        kept = int(np.argmax(totals))
        threshold = values[kept - 1] if kept else values[0] - 1.0
        results[f"best_{name}"] = float(100.0 * totals[kept] / len(examples))
        results[f"best_{name}_thresh"] = float(threshold)
    return results


def question_scores(
    examples: Sequence[SquadExample], predictions: Mapping[str, str], version_2: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Exact match and F1 of each question by itself.

    Args:
        examples: As in `squad_scores`.
        predictions: As in `squad_scores`.
        version_2: As in `squad_scores`.

    Returns:
        Two arrays float64 `[n]`, from 0 to 1.

    Raises:
        UserError: If the examples have no answers to compare with.
    """
    if not examples or not all(example.has_answers for example in examples):
        raise UserError(
            "Questions with their answers were expected. Received: "
            f"{sum(not example.has_answers for example in examples)} of {len(examples)} without"
        )
    exact, f1 = np.zeros(len(examples)), np.zeros(len(examples))
    for row, example in enumerate(examples):
        prediction = predictions.get(example.id)
        if prediction is None:
            continue
        if version_2:
            answers = _true_answers(example)
        else:
            answers = [answer.text for answer in example.answers]
        exact[row] = max((exact_match(prediction, answer) for answer in answers), default=0.0)
        f1[row] = max((word_f1(prediction, answer, version_2) for answer in answers), default=0.0)
    return exact, f1


def _true_answers(example):
    """The answers that have words; [""] where there is none, as evaluate-v2.0.py has it."""
    answers = [answer.text for answer in example.answers if normalize_answer(answer.text)]
    return answers or [""]


def _means(exact, f1, answerable, version_2):
    if not version_2:
        return {"exact_match": _percent(exact), "f1": _percent(f1), "total": len(exact)}
    results = {"exact": _percent(exact), "f1": _percent(f1), "total": len(exact)}
    for name, rows in (("HasAns", answerable), ("NoAns", ~answerable)):
        if rows.any():
            results[f"{name}_exact"] = _percent(exact[rows])
            results[f"{name}_f1"] = _percent(f1[rows])
            results[f"{name}_total"] = int(rows.sum())
    return results


def _answerable(examples):
    return np.array([bool(example.answers) for example in examples])


def _percent(scores):
    return 100.0 * float(scores.mean())
