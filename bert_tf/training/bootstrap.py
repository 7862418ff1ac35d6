"""How sure a score is: percentile intervals of the bootstrap over examples."""

import numpy as np
from tqdm import tqdm

from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import UserError
from bert_tf.training.scores import UndefinedScore, checked, score_functions


def bootstrap_intervals(
    gold: np.ndarray,
    predicted: np.ndarray,
    problem_type: str = SINGLE_LABEL,
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """The interval of every score of `bert_tf.training.scores`.

    Draws n of the n examples with replacement, again and again, and takes the percentiles of the
    scores. A draw that does not define a score (all of one class) does not count for it.

    Args:
        gold: As in `all_scores`.
        predicted: As in `all_scores`.
        problem_type: As in `all_scores`.
        samples: Draws.
        confidence: Share of the draws inside the interval.
        seed: Of the draws.

    Returns:
        Name to (low, high), of the scores that at least one draw defines.

    Reference: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3.
    """
    if samples < 1 or not 0.0 < confidence < 1.0:
        raise UserError(
            "`samples` must be at least 1 and `confidence` in (0, 1). "
            f"Received: samples={samples}, confidence={confidence}"
        )
    gold, predicted = checked(gold, predicted, problem_type)
    num_classes = predicted.shape[1] if predicted.ndim == 2 else 1
    functions = score_functions(problem_type, num_classes)
    generator = np.random.default_rng(seed)
    drawn = {name: [] for name in functions}
    for _ in tqdm(range(samples), desc="bootstrap", unit="draw", leave=False, disable=None):
        rows = generator.integers(0, len(gold), len(gold))
        for name, function in functions.items():
            try:
                drawn[name].append(function(gold[rows], predicted[rows]))
            except UndefinedScore:
                continue
    tail = 50.0 * (1.0 - confidence)
    return {
        name: tuple(float(end) for end in np.percentile(values, [tail, 100.0 - tail]))
        for name, values in drawn.items()
        if values
    }
