"""Confusion matrices, and as text."""

from collections.abc import Sequence

import numpy as np


def confusion_matrix(gold: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts class ids, `[n]` and `[n]`, in an int64 `[C, C]` with one row per gold class."""
    matrix = np.zeros([num_classes, num_classes], np.int64)
    np.add.at(matrix, (np.asarray(gold), np.asarray(predicted)), 1)
    return matrix


def confusion_text(matrix: np.ndarray, labels: Sequence[str]) -> str:
    """Returns a table with one row per gold label and one column per predicted label.

    Example:
        >>> print(confusion_text(np.array([[5, 1], [0, 7]]), ["ham", "spam"]))
        gold \\ predicted   ham  spam
        ham                  5     1
        spam                 0     7
    """
    corner = "gold \\ predicted"
    first = max(len(corner), *(len(label) for label in labels))
    widths = [max(len(label), len(str(column.max()))) for label, column in zip(labels, matrix.T)]

    lines = []
    for name, cells in zip([corner, *labels], [labels, *matrix]):
        columns = (f"  {cell:>{width}}" for cell, width in zip(cells, widths))
        lines.append(name.ljust(first) + "".join(columns))
    return "\n".join(lines)
