"""Scores of a whole evaluation set: scikit-learn's and SciPy's, by the kind of problem.

Glossary: `n` examples, `C` classes or labels.

The metrics of `bert_tf.training.evaluation.metrics` watch a training; these are what is reported.
"""

import logging
import warnings
from collections.abc import Callable

import numpy as np

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import DataError, UserError

_logger = logging.getLogger("bert_tf")

THRESHOLD = 0.5  # of multi-label probabilities
_SMALLEST = 1e-12  # a probability of zero has no logarithm


class UndefinedScore(DataError):
    """The data do not define a score: all of one class, or constant values."""


def score_functions(problem_type: str, num_classes: int) -> dict[str, Callable]:
    """The scores of a kind of problem: functions of gold labels and probabilities.

    Args:
        problem_type: "single_label_classification", "multi_label_classification" or "regression".
        num_classes: C. Two classes have the scores of class 1 too.

    Raises:
        UserError: If scikit-learn is missing.
    """
    require_scikit_learn()
    if problem_type == REGRESSION:
        return _REGRESSION_SCORES
    if problem_type == MULTI_LABEL:
        return _MULTI_LABEL_SCORES
    return {**_SINGLE_LABEL_SCORES, **(_BINARY_SCORES if num_classes == 2 else {})}


def all_scores(gold: np.ndarray, predicted: np.ndarray, problem_type: str = SINGLE_LABEL) -> dict:
    """Every score of predictions; one that the data do not define is left out with a warning.

    Args:
        gold: Class ids `[n]`; for several labels 0 or 1 `[n, C]`; for regression numbers `[n]`.
        predicted: Probabilities `[n, C]`; for regression numbers `[n]` or `[n, 1]`.
        problem_type: As in `score_functions`.

    Returns:
        Names to floats: "accuracy", "macro_f1", "matthews" and "loss" (mean cross-entropy), for two
        classes also "f1", "precision", "recall" and "auc" of class 1; "exact_match", "micro_f1",
        "macro_f1", "auc" (mean over the labels) and "loss"; "pearson", "spearman", "mae" and "loss"
        (mean squared error).

    Example:
        >>> gold, probabilities = np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]])
        >>> bert_tf.training.all_scores(gold, probabilities)["accuracy"]
        1.0
    """
    gold, predicted = checked(gold, predicted, problem_type)
    results = {}
    for name, function in score_functions(problem_type, _num_classes(predicted)).items():
        try:
            results[name] = float(function(gold, predicted))
        except UndefinedScore as error:
            _logger.warning("%s is left out: %s", name, error)
    return results


def checked(gold, predicted, problem_type) -> tuple[np.ndarray, np.ndarray]:
    """Gold labels and predictions as arrays whose shapes fit.

    Raises:
        DataError: If they do not, or a class id is out of range.
    """
    gold, predicted = np.asarray(gold), np.asarray(predicted, np.float64)
    if problem_type == REGRESSION and predicted.ndim == 2 and predicted.shape[1] == 1:
        predicted = predicted[:, 0]
    expected = predicted.shape[:1] if problem_type == SINGLE_LABEL else predicted.shape
    if gold.shape != expected or not gold.size:
        raise DataError(
            f"Gold labels of shape {list(expected)} were expected for predictions of shape "
            f"{list(predicted.shape)}. Received: {list(gold.shape)}"
        )
    if problem_type == SINGLE_LABEL:
        if predicted.ndim != 2 or gold.min() < 0 or gold.max() >= predicted.shape[1]:
            raise DataError(
                f"Class ids must be in [0, {_num_classes(predicted)}). "
                f"Received: {gold.min()} to {gold.max()}"
            )
    return gold, predicted


def roc_auc(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """Area under the ROC curve of class 1.

    Args:
        gold: 0 or 1, `[n]`.
        probabilities: Of class 1, `[n]`.

    Raises:
        UndefinedScore: If all examples are of one class.
    """
    from sklearn.metrics import roc_auc_score

    if gold.min() == gold.max():
        raise UndefinedScore(
            f"AUC needs examples of both classes. Received: all {len(gold)} of class {int(gold[0])}"
        )
    return roc_auc_score(gold, probabilities)


def require_scikit_learn() -> None:
    """Raises `UserError` if scikit-learn is missing, so that a tool can say so before it trains."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise UserError(
            "Scores need scikit-learn, which is not installed: pip install scikit-learn"
        ) from None


def _num_classes(predicted):
    return predicted.shape[1] if predicted.ndim == 2 else 1


def _accuracy(gold, probabilities):
    return np.mean(probabilities.argmax(axis=1) == gold)


def _cross_entropy(gold, probabilities):
    chosen = probabilities[np.arange(len(gold)), gold]
    return -np.mean(np.log(np.maximum(chosen, _SMALLEST)))


def _matthews(gold, probabilities):
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():  # about a single class, for which it is zero by convention
        warnings.simplefilter("ignore")
        return matthews_corrcoef(gold, probabilities.argmax(axis=1))


def _macro_f1(gold, probabilities):
    from sklearn.metrics import f1_score

    classes = np.arange(probabilities.shape[1])
    predicted = probabilities.argmax(axis=1)
    return f1_score(gold, predicted, labels=classes, average="macro", zero_division=0)


def _of_class_1(name):
    def score(gold, probabilities):
        import sklearn.metrics

        function = getattr(sklearn.metrics, f"{name}_score")
        return function(gold, probabilities.argmax(axis=1), zero_division=0)

    return score


def _label_f1(average):
    def score(gold, probabilities):
        from sklearn.metrics import f1_score

        return f1_score(gold, probabilities >= THRESHOLD, average=average, zero_division=0)

    return score


def _exact_match(gold, probabilities):
    return np.mean(np.all((probabilities >= THRESHOLD) == (gold > 0), axis=1))


def _mean_auc(gold, probabilities):
    return np.mean([roc_auc(g, p) for g, p in zip(gold.T, probabilities.T)])


def _binary_cross_entropy(gold, probabilities):
    chosen = np.where(gold > 0, probabilities, 1.0 - probabilities)
    return -np.mean(np.log(np.maximum(chosen, _SMALLEST)))


def _correlation(name):
    def score(gold, values):
        import scipy.stats

        for what, array in (("gold values", gold), ("predictions", values)):
            if array.size < 2 or array.min() == array.max():
                raise UndefinedScore(
                    f"A correlation needs {what} that differ. Received: {array.size} times "
                    f"{array.flat[0]}"
                )
        return getattr(scipy.stats, name)(gold, values)[0]

    return score


_SINGLE_LABEL_SCORES = {
    "accuracy": _accuracy,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
    "loss": _cross_entropy,
}
_BINARY_SCORES = {
    **{name: _of_class_1(name) for name in ("f1", "precision", "recall")},
    "auc": lambda gold, probabilities: roc_auc(gold, probabilities[:, 1]),
}
_MULTI_LABEL_SCORES = {
    "exact_match": _exact_match,
    "micro_f1": _label_f1("micro"),
    "macro_f1": _label_f1("macro"),
    "auc": _mean_auc,
    "loss": _binary_cross_entropy,
}
_REGRESSION_SCORES = {
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
    "mae": lambda gold, values: np.mean(np.abs(gold - values)),
    "loss": lambda gold, values: np.mean((gold - values) ** 2),
}
