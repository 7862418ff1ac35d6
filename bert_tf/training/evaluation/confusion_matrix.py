"""Confusion matrices, as text and as a picture."""

import os
from collections.abc import Sequence

import numpy as np

from bert_tf.base.optional_packages import require_package


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


def save_confusion_png(matrix: np.ndarray, labels: Sequence[str], path: str | os.PathLike) -> None:
    """Draws the matrix: the color of a cell is its fraction of the row, its text is the count.

    Raises:
        UserError: If matplotlib is missing.
    """
    require_package("matplotlib", "the picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = 2.0 + 0.6 * len(labels)
    figure = Figure(figsize=(size + 1.0, size), layout="constrained")
    axes = figure.add_subplot()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("predicted")
    axes.set_ylabel("gold")
    for row, column in np.ndindex(*matrix.shape):
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, str(matrix[row, column]), ha="center", va="center", color=color)
    FigureCanvasAgg(figure).print_png(os.fspath(path))
