"""Scores of a whole evaluation set by problem type, computed by scikit-learn and SciPy.

Without these packages, only the scores of `WITHOUT_SCIKIT_LEARN` are computed. The confidence
intervals of scores are percentiles of the bootstrap over examples.

Glossary: `n` examples, `C` classes or labels.
"""

import contextlib
import functools
import importlib.util
import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from bert_tf.base.optional_packages import install_command, require_package
from bert_tf.base.progress import progress_bar
from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import DataError, user_error
from bert_tf.training.evaluation.probabilities import POSITIVE_CLASS, decide

_logger = logging.getLogger("bert_tf")

WITHOUT_SCIKIT_LEARN = ("accuracy", "exact_match", "loss", "mae")  # NumPy computes these scores
_SMALLEST = 1e-12  # a probability of zero has no logarithm


class UndefinedScore(DataError):
    """The score is not defined for the data: all are of one class, or all values are equal."""


def score_functions(problem_type: str, num_classes: int) -> dict[str, Callable]:
    """Returns the scores of a problem type: functions of gold labels, probabilities and decisions.

    With two classes, the scores of class 1 are included. Without scikit-learn, those that need it
    are left out, which is logged once.
    """
    if problem_type == REGRESSION:
        functions = _REGRESSION_SCORES
    elif problem_type == MULTI_LABEL:
        functions = _MULTI_LABEL_SCORES
    else:
        functions = {**_SINGLE_LABEL_SCORES, **(_BINARY_SCORES if num_classes == 2 else {})}
    if has_scikit_learn():
        return functions
    return {name: score for name, score in functions.items() if name in WITHOUT_SCIKIT_LEARN}


def all_scores(
    gold: np.ndarray,
    predicted: np.ndarray,
    problem_type: str = SINGLE_LABEL,
    threshold: float | None = None,
) -> dict:
    """Computes every score. A score that is not defined for the data is skipped with a warning.

    Args:
        gold: `[n]` class ids; for multi-label problems `[n, C]`, 0 or 1; for regression `[n]`.
        predicted: `[n, C]` probabilities; for regression `[n]` or `[n, 1]`.
        problem_type: "single_label_classification", "multi_label_classification" or "regression".
        threshold: See `decide`; that of a classifier is its attribute of this name.

    Returns:
        The scores by name. For one label: "accuracy", "macro_f1", "matthews" and "loss" (mean
        cross-entropy), with two classes also "f1", "precision", "recall" and "auc" of class 1. For
        several labels: "exact_match", "micro_f1", "macro_f1", "auc" (mean over the labels) and
        "loss". For regression: "pearson", "spearman", "mae" and "loss" (mean squared error).
        Without scikit-learn: only "accuracy", "exact_match", "mae" and "loss".

    Raises:
        DataError: If the shapes do not match or a class id is out of range.

    Example:
        >>> gold, probabilities = np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]])
        >>> bert_tf.training.all_scores(gold, probabilities)["accuracy"]
        1.0
    """
    gold, predicted = check_predictions(gold, predicted, problem_type)
    decided = decide(predicted, problem_type, threshold)
    results = {}
    for name, function in score_functions(problem_type, num_classes(predicted)).items():
        try:
            results[name] = float(function(gold, predicted, decided))
        except UndefinedScore as error:
            _logger.warning("%s is skipped: %s", name, error)
    return results


def check_predictions(gold, predicted, problem_type) -> tuple[np.ndarray, np.ndarray]:
    """Returns gold labels and predictions as arrays.

    Raises `DataError` if the shapes do not match or a class id is out of range.
    """
    gold, predicted = np.asarray(gold), np.asarray(predicted, np.float64)
    if gold.dtype.kind not in "biuf":
        received = f"{gold.reshape(-1)[:1].tolist()}. Pass `model.targets(names)`."
        raise user_error("`gold`", "have class ids or numbers, not names", received, DataError)
    if problem_type == REGRESSION and predicted.ndim == 2 and predicted.shape[1] == 1:
        predicted = predicted[:, 0]
    expected = predicted.shape[:1] if problem_type == SINGLE_LABEL else predicted.shape
    if gold.shape != expected or not gold.size:
        expected = f"have shape {list(expected)} for predictions of shape {list(predicted.shape)}"
        raise user_error("`gold`", expected, f"gold.shape={list(gold.shape)}", DataError)
    if problem_type == SINGLE_LABEL:
        if predicted.ndim != 2 or gold.min() < 0 or gold.max() >= predicted.shape[1]:
            expected = f"have class ids in [0, {num_classes(predicted)})"
            raise user_error("`gold`", expected, f"{gold.min()} to {gold.max()}", DataError)
    return gold, predicted


def num_classes(predicted: np.ndarray) -> int:
    """Returns C, or 1 for regression."""
    return predicted.shape[1] if predicted.ndim == 2 else 1


def roc_auc(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """Computes the area under the ROC curve of class 1, from labels `[n]` and its probabilities.

    Raises `UndefinedScore` if all examples are of one class.
    """
    if gold.min() == gold.max():
        raise UndefinedScore(
            "`gold` must have examples of both classes for AUC. "
            f"Received: all {len(gold)} of class {int(gold[0])}"
        )
    return _sklearn("roc_auc_score", gold, probabilities)


def require_scikit_learn(purpose: str = "scores") -> None:
    """Raises `UserError` if scikit-learn is missing. Tools call it before any work."""
    require_package("sklearn.metrics", purpose)


def require_scores(names: Iterable[str]) -> None:
    """Raises `UserError` if scikit-learn is missing and one of these scores needs it.

    Otherwise it logs that others are left out. Tools call it before any work.
    """
    needing = sorted(set(names) - set(WITHOUT_SCIKIT_LEARN))
    if needing:
        require_scikit_learn(", ".join(needing))
    else:
        has_scikit_learn()


@functools.cache
def has_scikit_learn() -> bool:
    """Returns whether scikit-learn is installed. If not, what is left out is logged."""
    if importlib.util.find_spec("sklearn") is not None:
        return True
    _logger.warning(
        "F1, AUC, correlations and other scores that need scikit-learn are left out. To get them, "
        "run `%s`.",
        install_command("sklearn"),
    )
    return False


def _sklearn(name, *arguments, **options):
    import sklearn.metrics

    return getattr(sklearn.metrics, name)(*arguments, **options)


def _log_loss(chosen):
    """Returns the mean cross-entropy from the probabilities of the gold labels."""
    return -np.mean(np.log(np.maximum(chosen, _SMALLEST)))


def _matthews(gold, probabilities, decided):
    with warnings.catch_warnings():  # about a single class, for which it is zero by convention
        warnings.simplefilter("ignore")
        return _sklearn("matthews_corrcoef", gold, decided)


def _macro_f1(gold, probabilities, decided):
    options = {"labels": np.arange(probabilities.shape[1]), "average": "macro"}
    return _class_score("f1_score", gold, probabilities, decided, **options)


def _class_score(name, gold, probabilities, decided, **options):
    return _sklearn(name, gold, decided, zero_division=0, **options)


def _correlation(name, gold, values, decided):
    import scipy.stats

    for what, array in (("gold", gold), ("predicted", values)):
        if array.size < 2 or array.min() == array.max():
            raise UndefinedScore(
                f"`{what}` must have different values for a correlation. "
                f"Received: {array.size} times {array.flat[0]}"
            )
    return getattr(scipy.stats, name)(gold, values)[0]


_SINGLE_LABEL_SCORES = {
    "accuracy": lambda gold, p, decided: np.mean(decided == gold),
    "macro_f1": _macro_f1,
    "matthews": _matthews,
    "loss": lambda gold, p, decided: _log_loss(p[np.arange(len(gold)), gold]),
}
_BINARY_SCORES = {
    "f1": functools.partial(_class_score, "f1_score", pos_label=POSITIVE_CLASS),
    "precision": functools.partial(_class_score, "precision_score", pos_label=POSITIVE_CLASS),
    "recall": functools.partial(_class_score, "recall_score", pos_label=POSITIVE_CLASS),
    "auc": lambda gold, p, decided: roc_auc(gold, p[:, POSITIVE_CLASS]),
}
_MULTI_LABEL_SCORES = {
    "exact_match": lambda gold, p, decided: np.mean(np.all(decided == (gold > 0), axis=1)),
    "micro_f1": functools.partial(_class_score, "f1_score", average="micro"),
    "macro_f1": functools.partial(_class_score, "f1_score", average="macro"),
    "auc": lambda gold, p, decided: np.mean([roc_auc(*column) for column in zip(gold.T, p.T)]),
    "loss": lambda gold, p, decided: _log_loss(np.where(gold > 0, p, 1.0 - p)),
}
_REGRESSION_SCORES = {
    "pearson": functools.partial(_correlation, "pearsonr"),
    "spearman": functools.partial(_correlation, "spearmanr"),
    "mae": lambda gold, values, decided: np.mean(np.abs(gold - values)),
    "loss": lambda gold, values, decided: np.mean((gold - values) ** 2),
}


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
    scores = class_score_rows(gold, predicted, problem_type, threshold)
    return drawn_intervals(scores, len(gold), samples, confidence, seed)


def class_score_rows(
    gold: np.ndarray,
    predicted: np.ndarray,
    problem_type: str = SINGLE_LABEL,
    threshold: float | None = None,
    names: Collection[str] | None = None,
) -> Callable[[np.ndarray], dict[str, float]]:
    """Returns a function from the indices of examples to the scores that are defined for them.

    The arguments and errors are those of `all_scores`. `names` are the scores to compute; None
    means all.
    """
    gold, predicted = check_predictions(gold, predicted, problem_type)
    functions = score_functions(problem_type, num_classes(predicted))
    if names is not None:
        unknown = sorted(set(names) - set(functions))
        if unknown:
            raise user_error("`names`", f"be some of {list(functions)}", unknown)
        functions = {name: functions[name] for name in names}
    decided = decide(predicted, problem_type, threshold)

    def scores(rows):
        results = {}
        for name, function in functions.items():
            with contextlib.suppress(UndefinedScore):
                results[name] = function(gold[rows], predicted[rows], decided[rows])
        return results

    return scores


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
