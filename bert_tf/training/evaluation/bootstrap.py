"""Confidence intervals of scores: percentiles of the bootstrap over examples."""

import contextlib
from collections.abc import Callable, Mapping

import numpy as np

from bert_tf.base.progress import progress_bar
from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import user_error
from bert_tf.training.evaluation.probabilities import decide
from bert_tf.training.evaluation.scores import (
    UndefinedScore,
    check_predictions,
    num_classes,
    score_functions,
)


def bootstrap_intervals(
    gold: np.ndarray,
    predicted: np.ndarray,
    problem_type: str = SINGLE_LABEL,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    threshold: float | None = None,
) -> dict[str, tuple[float, float]]:
    """Computes the interval of every score of `all_scores`.

    Args:
        gold, predicted, problem_type, threshold: See `all_scores`.
        samples, confidence, seed: See `drawn_intervals`.

    Returns:
        The intervals (low, high) by the name of the score. Draws for which a score is not defined,
        because all examples are of one class, do not count for it.

    Raises:
        DataError: If the shapes do not match or a class id is out of range.
        UserError: If `samples` or `confidence` is out of range.

    Example:
        >>> gold = np.array([0, 1] * 50)
        >>> predicted = np.eye(2)[np.where(np.arange(100) % 5 == 0, 1 - gold, gold)]  # 80 are right
        >>> low, high = bootstrap_intervals(gold, predicted, samples=20)["accuracy"]
        >>> low < 0.8 < high
        True
    """
    gold, predicted = check_predictions(gold, predicted, problem_type)
    functions = score_functions(problem_type, num_classes(predicted))
    decided = decide(predicted, problem_type, threshold)

    def scores(rows):
        results = {}
        for name, function in functions.items():
            with contextlib.suppress(UndefinedScore):
                results[name] = function(gold[rows], predicted[rows], decided[rows])
        return results

    return drawn_intervals(scores, len(gold), samples, confidence, seed)


def drawn_intervals(
    scores: Callable[[np.ndarray], Mapping[str, float]],
    num_examples: int,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Computes percentiles of scores over draws of n of the n examples with replacement.

    Args:
        scores: A function of the indices of the drawn examples, int64 `[n]`, which returns the
            scores by name.
        num_examples: n.
        samples: The number of draws, at least 1.
        confidence: The fraction of the draws that is inside the interval, in (0, 1).
        seed: The seed of the draws.

    Returns:
        The intervals (low, high) by the name of the score.

    Raises:
        UserError: If `samples` is less than 1 or `confidence` is not in (0, 1).

    Reference: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3.
    """
    if samples < 1 or not 0.0 < confidence < 1.0:
        received = f"samples={samples}, confidence={confidence}"
        raise user_error("`samples`", "be at least 1 and `confidence` in (0, 1)", received)
    generator = np.random.default_rng(seed)
    drawn = {}
    for _ in progress_bar(range(samples), desc="bootstrap", unit="draw", leave=False):
        for name, value in scores(generator.integers(0, num_examples, num_examples)).items():
            drawn.setdefault(name, []).append(value)
    tail = 50.0 * (1.0 - confidence)
    return {
        name: tuple(float(end) for end in np.percentile(values, [tail, 100.0 - tail]))
        for name, values in drawn.items()
    }
