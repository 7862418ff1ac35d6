"""Computes probabilities from logits, in float64, and decides on them."""

from collections.abc import Sequence

import numpy as np

from bert_tf.config import MULTI_LABEL, REGRESSION

# The one of two classes that F1, precision, recall, AUC and a threshold are about, in Python, in
# programs and in exported models. Labels that nobody orders are sorted: "bad", "good"; "0", "1".
POSITIVE_CLASS = 1
LABEL_THRESHOLD = 0.5  # the probability from which a text has a label, where it may have several


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities that sum to 1 over the classes: `[n, C]` -> `[n, C]`.

    Example:
        >>> softmax([[0.0, 0.0]]).tolist()
        [[0.5, 0.5]]
    """
    logits = np.asarray(logits, np.float64)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probability of each label, of any shape.

    Example:
        >>> float(sigmoid(0.0))
        0.5
    """
    logits = np.asarray(logits, np.float64)
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1.0, small) / (1.0 + small)


def decide(probabilities: np.ndarray, problem_type: str, threshold: float | None = None):
    """Returns the class ids `[n]`, or whether a text has each of several labels, bool `[n, C]`.

    Args:
        probabilities: `[n, C]`; the numbers of a regression are returned as they are.
        problem_type: See `BertTextClassifier`.
        threshold: The smallest probability of class 1 of two, or of any of several labels. None is
            the most probable class, or 0.5 for several labels.

    Example:
        >>> decide(np.array([[0.6, 0.4], [0.9, 0.1]]), "single_label_classification", 0.3).tolist()
        [1, 0]
    """
    if problem_type == REGRESSION:
        return probabilities
    if problem_type == MULTI_LABEL:
        return probabilities >= (LABEL_THRESHOLD if threshold is None else threshold)
    if threshold is None:
        return probabilities.argmax(axis=-1)
    return (probabilities[..., POSITIVE_CLASS] >= threshold).astype(np.int64)


def positive_class_text(labels: Sequence[str]) -> str:
    """Returns what reports of two classes say about their scores.

    Example:
        >>> positive_class_text(["bad", "good"])
        "f1, precision, recall and auc are those of the class 'good'"
    """
    return f"f1, precision, recall and auc are those of the class {labels[POSITIVE_CLASS]!r}"
