"""Scores of pairs against the best threshold, which is searched among all that differ.

Glossary: `n` pairs.
"""

from typing import NamedTuple

import numpy as np

from bert_tf.errors import DataError, user_error
from bert_tf.training.evaluation.scores import has_scikit_learn


class BestThreshold(NamedTuple):
    """A threshold and the value of the score that it is the best for."""

    threshold: float
    value: float


def pair_scores(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Computes the scores of binary decisions on pairs, with the thresholds that are best for them.

    A pair is positive if its score is at least the threshold, which is in the middle between the
    scores next to it. Any scores do: cosines, logits, negative distances.

    Args:
        scores: n finite numbers, larger for more similar pairs.
        labels: n labels, 0 or 1.

    Returns:
        `accuracy` and `accuracy_threshold`; `f1`, `f1_threshold` and, with that threshold,
        `precision`, `recall` and `matthews`; with scikit-learn `average_precision`, which has no
        threshold.

    Raises:
        DataError: If there are no pairs, not as many labels, a label is neither 0 nor 1, or a score
            is not finite.

    Example:
        >>> from bert_tf.training.evaluation.pair_scores import pair_scores
        >>> found = pair_scores(np.array([0.9, 0.2, 0.6, 0.3]), np.array([1, 0, 1, 1]))
        >>> found["f1"], found["f1_threshold"]
        (1.0, 0.25)

    Reference: `BinaryClassificationEvaluator` of sentence-transformers.
    """
    scores, labels = np.asarray(scores), np.asarray(labels)
    scores = scores if scores.dtype.kind == "f" else scores.astype(np.float64)
    if scores.ndim != 1 or scores.shape != labels.shape or not scores.size:
        received = f"scores.shape={scores.shape}, labels.shape={labels.shape}"
        raise user_error("`scores` and `labels`", "have the same shape [n]", received, DataError)
    if not np.isin(labels, (0, 1)).all():
        raise user_error("`labels`", "be 0 or 1", np.unique(labels)[:10], DataError)
    if not np.isfinite(scores).all():
        place = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise user_error("`scores`", "be finite", f"{scores[place]} for pair {place}", DataError)
    labels = labels.astype(bool)
    accuracy = best_accuracy_threshold(scores, labels)
    f1 = best_f1_threshold(scores, labels)
    decided = scores >= f1.threshold
    right = float(np.sum(decided & labels))
    results = {
        "accuracy": accuracy.value,
        "accuracy_threshold": accuracy.threshold,
        "f1": f1.value,
        "f1_threshold": f1.threshold,
        "precision": right / max(int(np.sum(decided)), 1),
        "recall": right / max(int(np.sum(labels)), 1),
        "matthews": _matthews(decided, labels),
    }
    if has_scikit_learn():
        from sklearn.metrics import average_precision_score

        average = average_precision_score(labels, scores) if labels.any() else 0.0
        results["average_precision"] = float(average)
    return results


def best_accuracy_threshold(scores: np.ndarray, labels: np.ndarray) -> BestThreshold:
    """Finds the threshold with the largest share of right decisions.

    Args:
        scores: Floats `[n]`. The threshold is one of the same dtype.
        labels: Booleans `[n]`.

    Returns:
        The threshold, above all scores if it is best that no pair is positive, and the accuracy. Of
        equally good thresholds, the largest is returned.
    """
    positives, right, thresholds = _cuts(scores, labels)
    others_left = np.count_nonzero(~labels) - (positives - right)
    values = (right + others_left) / len(labels)
    best = int(np.argmax(values))
    return BestThreshold(float(thresholds[best]), float(values[best]))


def best_f1_threshold(
    scores: np.ndarray, labels: np.ndarray, num_positive: int | None = None
) -> BestThreshold:
    """Finds the threshold with the largest F1 of the positive pairs; see `best_accuracy_threshold`.

    `num_positive` is the number of true pairs if `labels` do not have all of them.
    """
    positives, right, thresholds = _cuts(scores, labels)
    num_positive = np.count_nonzero(labels) if num_positive is None else num_positive
    values = 2.0 * right / np.maximum(positives + num_positive, 1)
    best = int(np.argmax(values))
    return BestThreshold(float(thresholds[best]), float(values[best]))


def _cuts(scores, labels):
    """Returns, per possible threshold, the pairs above it, the right ones of them, and its value.

    The first threshold is above all scores.
    """
    order = np.argsort(-scores, kind="stable")
    scores, labels = scores[order], labels[order]
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))  # of groups of equal scores
    lowest = scores[ends]
    following = np.append(lowest[1:], lowest[-1])
    middle = (lowest / 2.0 + following / 2.0).astype(scores.dtype)
    thresholds = np.where(middle > following, middle, lowest)  # it may be rounded
    right = np.cumsum(labels)[ends]
    above = np.nextafter(lowest[0], np.inf, dtype=scores.dtype)
    return np.append(0, ends + 1), np.append(0, right), np.append(above, thresholds)


def _matthews(decided, labels):
    one, two = decided - decided.mean(), labels - labels.mean()
    scale = np.sqrt((one**2).sum() * (two**2).sum())
    return float((one * two).sum() / scale) if scale else 0.0
