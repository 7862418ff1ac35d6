"""How sure a score is: percentile intervals of the bootstrap over examples."""

from collections.abc import Callable, Mapping

import numpy as np
from tqdm import tqdm

from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import UserError
from bert_tf.training.evaluation.scores import UndefinedScore, checked, score_functions


def bootstrap_intervals(
    gold: np.ndarray,
    predicted: np.ndarray,
    problem_type: str = SINGLE_LABEL,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """The interval of every score of `bert_tf.training.evaluation.scores`.

    A draw that does not define a score (all of one class) does not count for it.

    Args:
        gold: As in `all_scores`.
        predicted: As in `all_scores`.
        problem_type: As in `all_scores`.
        samples: As in `drawn_intervals`.
        confidence: As in `drawn_intervals`.
        seed: As in `drawn_intervals`.

    Returns:
        Name to (low, high), of the scores that at least one draw defines.

    Example:
        >>> gold = np.array([0, 1] * 50)
        >>> predicted = np.eye(2)[np.where(np.arange(100) % 5 == 0, 1 - gold, gold)]  # 80 are right
        >>> low, high = bootstrap_intervals(gold, predicted, samples=20)["accuracy"]
        >>> low < 0.8 < high
        True
    """
    gold, predicted = checked(gold, predicted, problem_type)
    num_classes = predicted.shape[1] if predicted.ndim == 2 else 1
    functions = score_functions(problem_type, num_classes)

    def scores(rows):
        results = {}
        for name, function in functions.items():
            try:
                results[name] = function(gold[rows], predicted[rows])
            except UndefinedScore:
                continue
        return results

    return drawn_intervals(scores, len(gold), samples, confidence, seed)


def drawn_intervals(
    scores: Callable[[np.ndarray], Mapping[str, float]],
    num_examples: int,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Draws n of the n examples with replacement, again and again: percentiles of their scores.

    Args:
        scores: The scores, by name, of the examples with these numbers, int64 `[n]`. It leaves out
            what they do not define.
        num_examples: n.
        samples: Draws.
        confidence: Share of the draws inside the interval.
        seed: Of the draws.

    Returns:
        Name to (low, high), of the scores that at least one draw defines.

    Raises:
        UserError: If there is no draw, or the confidence is none.

    Reference: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3.
    """
    if samples < 1 or not 0.0 < confidence < 1.0:
        raise UserError(
            "`samples` must be at least 1 and `confidence` in (0, 1). "
            f"Received: samples={samples}, confidence={confidence}"
        )
    generator = np.random.default_rng(seed)
    drawn = {}
    for _ in tqdm(range(samples), desc="bootstrap", unit="draw", leave=False, disable=None):
        for name, value in scores(generator.integers(0, num_examples, num_examples)).items():
            drawn.setdefault(name, []).append(value)
    tail = 50.0 * (1.0 - confidence)
    return {
        name: tuple(float(end) for end in np.percentile(values, [tail, 100.0 - tail]))
        for name, values in drawn.items()
    }
