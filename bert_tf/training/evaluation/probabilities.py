"""Computes probabilities from logits, in float64."""

import numpy as np


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
