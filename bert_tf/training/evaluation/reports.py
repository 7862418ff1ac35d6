"""What programs report of a classifier: every class by its name, as text and as pictures."""

import os
from collections.abc import Sequence

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.config import SINGLE_LABEL
from bert_tf.training.evaluation.confusion_matrix import confusion_matrix, confusion_text
from bert_tf.training.evaluation.pictures import CURVES, draw_confusion, draw_curves
from bert_tf.training.evaluation.probabilities import decide, positive_class_text
from bert_tf.training.evaluation.scores import has_scikit_learn


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
