"""Paired tests of whether two systems differ on the same examples.

A system is its predictions. The scores of any draw of examples come from one function of indices,
where the indices `[0, n)` are the examples with the predictions of one system and `[n, 2n)` the
same examples with those of the other. So both tests serve every score: BLEU, NDCG, F1 of spans.

Glossary: `n` examples.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from bert_tf.base.progress import progress_bar
from bert_tf.errors import require_one_of, user_error

TESTS = ("randomization", "bootstrap")
# Two sums of the same numbers in another order may differ by this share of a score.
_ROUNDING = 1e-9


class Comparison(NamedTuple):
    """The scores of two systems, and how probable such a difference is between equal systems."""

    score: float
    other: float
    p_value: float


def compare_systems(
    scores: Callable[[np.ndarray], Mapping[str, float]],
    num_examples: int,
    test: str = "randomization",
    samples: int = 1000,
    seed: int = 0,
) -> dict[str, Comparison]:
    """Tests whether two systems differ in any of the scores.

    "randomization" exchanges the predictions of a random half of the examples; the p-value is the
    share of exchanges after which the systems differ at least as much as they do. It is two-sided.
    "bootstrap" draws examples with replacement; the p-value is the share of draws in which the
    absolute difference exceeds its mean over the draws by at least the difference of the systems,
    as in sacrebleu. That is a one-sided tail if all draws favour one system, so such p-values are
    about half as large. Both shares count one draw more than there are, so none is zero.

    Args:
        scores: A function of indices, int64 `[n]`, below n for the predictions of one system and
            from n on for those of the other. It returns the scores by name; one that is not defined
            for the draw is left out, and the draw does not count for it.
        num_examples: n.
        test: "randomization" or "bootstrap".
        samples: The number of draws, at least 1.
        seed: The seed of the draws.

    Returns:
        The `Comparison` by the name of the score, for the scores that both systems have.

    Raises:
        UserError: If `test` is unknown, or `samples` or `num_examples` is less than 1.

    Example:
        >>> from bert_tf.training.evaluation import compare_systems
        >>> gold, one = np.ones(10, int), np.ones(10, int)
        >>> right = np.concatenate([one == gold, np.arange(10) % 2 == 0])  # 10 and 5 of 10
        >>> accuracy = compare_systems(lambda rows: {"accuracy": right[rows].mean()}, 10)[
        ...     "accuracy"
        ... ]
        >>> accuracy.score, accuracy.other, 0.03 < accuracy.p_value < 0.1
        (1.0, 0.5, True)

    Reference: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation";
        Riezler and Maxwell 2005, "On Some Pitfalls in Automatic Evaluation and Significance Testing
        for MT" (approximate randomization).
    """
    require_one_of("test", test, TESTS)
    if samples < 1 or num_examples < 1:
        received = f"samples={samples}, num_examples={num_examples}"
        raise user_error("`samples` and `num_examples`", "be at least 1", received)
    rows, generator = np.arange(num_examples), np.random.default_rng(seed)
    one, other = scores(rows), scores(rows + num_examples)
    names = [name for name in one if name in other]
    drawn = {name: [] for name in names}
    for _ in progress_bar(range(samples), desc=test, unit="draw", leave=False):
        if test == "bootstrap":
            first = generator.integers(0, num_examples, num_examples)
            second = first + num_examples
        else:
            is_exchanged = generator.integers(0, 2, num_examples, dtype=bool)
            first = np.where(is_exchanged, rows + num_examples, rows)
            second = np.where(is_exchanged, rows, rows + num_examples)
        sides = scores(first), scores(second)
        for name in names:
            if name in sides[0] and name in sides[1]:
                drawn[name].append(abs(sides[0][name] - sides[1][name]))

    comparisons = {}
    for name in names:
        difference, values = abs(one[name] - other[name]), np.array(drawn[name])
        if test == "bootstrap" and len(values):
            values = values - values.mean()
        rounding = _ROUNDING * max(abs(one[name]), abs(other[name]), 1.0)
        count = np.count_nonzero(~(values < difference - rounding))  # NaN is no difference
        p_value = (count + 1) / (len(values) + 1)
        comparisons[name] = Comparison(float(one[name]), float(other[name]), float(p_value))
    return comparisons
