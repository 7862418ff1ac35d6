"""Reports of an evaluation, and its pictures: confusion matrix, curves, learning.

scikit-learn draws the curves. Of two classes they are those of `POSITIVE_CLASS`, of more classes or
of several labels there is a curve for each. Every function that draws returns the figure, which a
notebook shows, and writes it if there is a path. Glossary: `n` examples, `C` classes or labels.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.base.pictures import new_figure, save_picture
from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import require_one_of
from bert_tf.training.evaluation.confusion_matrix import confusion_matrix, confusion_text
from bert_tf.training.evaluation.probabilities import POSITIVE_CLASS, decide, positive_class_text
from bert_tf.training.evaluation.scores import has_scikit_learn

if TYPE_CHECKING:
    import keras
    from matplotlib.figure import Figure

# The displays of scikit-learn and their options.
CURVES = {
    "roc": ("sklearn.metrics", "RocCurveDisplay", {}),
    "precision_recall": ("sklearn.metrics", "PrecisionRecallDisplay", {}),
    "calibration": (
        *("sklearn.calibration", "CalibrationDisplay"),
        {"n_bins": 10, "strategy": "quantile"},
    ),
}
_SIDES = ("xlabel", "ylabel")
_PANELS = 3  # in a line of the learning curves


def draw_confusion(
    gold: np.ndarray,
    predicted: np.ndarray,
    labels: Sequence[str],
    path: str | os.PathLike | None = None,
) -> "Figure":
    """Draws a confusion matrix: the color of a cell is its fraction of the row, its text the count.

    Args:
        gold, predicted: Class ids `[n]`.
        labels: The names of the classes.
        path: A `.png`, `.svg` or `.pdf` file to write, or None.

    Raises:
        UserError: If matplotlib is missing or the file has another ending.

    Example:
        >>> figure = draw_confusion([0, 1, 1], [0, 0, 1], ["bad", "good"], "confusion.png")
    """
    matrix = confusion_matrix(gold, predicted, len(labels))
    size = 2.0 + 0.6 * len(labels)
    figure = new_figure((size + 1.0, size))
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
    return save_picture(figure, path)


def draw_curves(
    kind: str,
    gold: np.ndarray,
    probabilities: np.ndarray,
    labels: Sequence[str],
    path: str | os.PathLike | None = None,
) -> "Figure":
    """Draws curves of classes over all thresholds.

    Args:
        kind: "roc"; "precision_recall"; or "calibration", how often a label is right against its
            probability, in ten bins of as many examples.
        gold: Class ids `[n]`, or 0 and 1 of several labels `[n, C]`.
        probabilities: `[n, C]`.
        labels: The names of the classes or labels.
        path: A `.png`, `.svg` or `.pdf` file to write, or None.

    Raises:
        UserError: If scikit-learn or matplotlib is missing, `kind` is unknown, or the file has
            another ending.

    Example:
        >>> gold, probabilities = np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]])
        >>> figure = draw_curves("roc", gold, probabilities, ["bad", "good"], "roc.png")
    """
    require_one_of("kind", kind, tuple(CURVES))
    module, display, options = CURVES[kind]
    figure = new_figure((6.0, 5.0))
    axes = figure.add_subplot()
    draw = getattr(require_package(module, "curves"), display).from_predictions
    for name, is_class, values in _curves(np.asarray(gold), np.asarray(probabilities), labels):
        draw(is_class, values, name=name, ax=axes, **options)
    # scikit-learn adds that 1 is the positive label, which it is of every curve.
    axes.set(**{side: getattr(axes, f"get_{side}")().partition(" (")[0] for side in _SIDES})
    return save_picture(figure, path)


def draw_history(
    history: "keras.callbacks.History | Mapping[str, Sequence[float]]",
    path: str | os.PathLike | None = None,
) -> "Figure":
    """Draws learning curves: a panel for each number of `fit`, with that of the validation data.

    Args:
        history: What `fit` returned, or its attribute `history`.
        path: A `.png`, `.svg` or `.pdf` file to write, or None.

    Raises:
        UserError: If matplotlib is missing or the file has another ending.

    Example:
        >>> figure = draw_history({"loss": [0.7, 0.4], "val_loss": [0.6, 0.5]}, "learning.png")
    """
    values = getattr(history, "history", history)
    names = list(dict.fromkeys(name.removeprefix("val_") for name in values))
    lines, columns = -(-len(names) // _PANELS), min(len(names), _PANELS)
    figure = new_figure((3.6 * columns, 2.8 * lines))
    for place, name in enumerate(names, start=1):
        axes = figure.add_subplot(lines, columns, place, title=name, xlabel="epoch")
        for key, kind in ((name, "training"), (f"val_{name}", "validation")):
            if key in values:
                axes.plot(range(1, len(values[key]) + 1), values[key], marker="o", label=kind)
        axes.locator_params(axis="x", integer=True)
        axes.legend()
    return save_picture(figure, path)


def _curves(gold, probabilities, labels) -> Iterator[tuple[str, np.ndarray, Any]]:
    """Yields the name of each class, whether examples have it, and its probabilities, `[n]`.

    A class that all examples have, or none, has no curve.
    """
    several = gold.ndim == 2
    classes = range(len(labels)) if several or len(labels) > 2 else [POSITIVE_CLASS]
    for number in classes:
        is_class = gold[:, number] > 0 if several else gold == number
        if is_class.any() and not is_class.all():
            yield labels[number], is_class, probabilities[:, number]


class ClassReport:
    """Predictions of classes.

    Args:
        gold: Class ids `[n]`, or 0 and 1 of several labels `[n, C]`.
        probabilities: `[n, C]`.
        problem_type: See `BertTextClassifier`, but not regression.
        labels: The names of the classes or labels.
        threshold: See `decide`.
    """

    def __init__(
        self,
        gold: np.ndarray,
        probabilities: np.ndarray,
        problem_type: str,
        labels: Sequence[str],
        threshold: float | None = None,
    ):
        self._predictions = gold, probabilities, labels
        self._decided = decide(probabilities, problem_type, threshold)
        self._has_one_label = problem_type == SINGLE_LABEL

    def lines(self) -> list[str]:
        """Returns the confusion matrix, the scores of every class and, of two, the positive one."""
        gold, _, labels = self._predictions
        lines = []
        if self._has_one_label:
            matrix = confusion_matrix(gold, self._decided, len(labels))
            lines.append(confusion_text(matrix, labels))
        if has_scikit_learn():
            report = require_package("sklearn.metrics", "scores").classification_report
            options = {"labels": range(len(labels)), "target_names": labels, "digits": 4}
            lines.append(report(gold, self._decided, zero_division=0, **options))
        if self._has_one_label and len(labels) == 2:
            lines.append(positive_class_text(labels))
        return lines

    def save_pictures(self, directory: str) -> None:
        """Writes confusion.png, but not of several labels, and a file for each of `CURVES`."""
        gold, probabilities, labels = self._predictions
        if self._has_one_label:
            path = os.path.join(directory, "confusion.png")
            draw_confusion(gold, self._decided, labels, path)
        for kind in CURVES:
            path = os.path.join(directory, f"{kind}.png")
            draw_curves(kind, gold, probabilities, labels, path)
