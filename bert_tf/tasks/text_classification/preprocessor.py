"""What `BertTextClassifier` reads and answers: labels by name or id, probabilities of classes."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.optional_packages import require_package
from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import DataError, require, user_error
from bert_tf.inputs.columns import is_container, row_array
from bert_tf.inputs.labels import (
    IdsInGraph,
    class_ids,
    class_sets,
    holds_numbers,
    read_regression_labels,
)
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.training.evaluation.probabilities import POSITIVE_CLASS, decide, sigmoid, softmax


class Classification(NamedTuple):
    """What a text is classified as.

    Attributes:
        labels: The most probable label; where a text may have several, all with a probability of at
            least 0.5. A `threshold` of the model decides otherwise. Empty for a regression.
        scores: The probability of every label; for a regression the numbers. Where the model has no
            names, they are LABEL_0, LABEL_1 and so on.

    Example:
        >>> Classification(("good",), {"bad": 0.25, "good": 0.75}).label
        'good'
    """

    labels: tuple[str, ...]
    scores: dict[str, float]

    @property
    def label(self) -> str | None:
        """The first label; None if there is none."""
        return self.labels[0] if self.labels else None


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class TextClassificationPreprocessor(Preprocessor):
    """Maps texts or pairs to tokens, labels to ids, logits to probabilities."""

    num_classes: int | None = None
    labels: list[str] | None = None
    problem_type: str | None = None
    threshold: float | None = None

    def targets(self, y, x):
        """Returns the targets; labels may be given by their names."""
        if not is_container(y):
            return y
        y = row_array(y, "y")
        if self.problem_type == REGRESSION:
            return read_regression_labels(y, self.num_classes)
        if self.problem_type == MULTI_LABEL:
            return class_sets(y, self.labels, self.num_classes)
        if not isinstance(x, dict) and holds_numbers(y):  # token dictionaries come with ids
            refuse_unclear_numbers(self.labels)
        keep_rows = not self.has_sparse_labels
        return class_ids(y, self.labels, self.num_classes, keep_rows=keep_rows)

    def graph_targets(self, spec, of_text):
        is_number = spec.dtype != tf.string and spec.shape[1:].num_elements() in (None, 1)
        if of_text and is_number and self.problem_type == SINGLE_LABEL:
            refuse_unclear_numbers(self.labels)
        if spec.dtype != tf.string:
            is_one_hot = spec.shape.rank == 2 and spec.shape[1] == self.num_classes
            if self.problem_type == SINGLE_LABEL and is_one_hot and self.has_sparse_labels:
                return lambda y: tf.argmax(y, axis=-1, output_type=tf.int32)
            return None
        if self.problem_type == REGRESSION:
            return tf.strings.to_number
        if self.problem_type == MULTI_LABEL:
            expected = "be rows of 0 and 1, as `targets` makes them"
            raise user_error("Several labels in a dataset", expected, "strings")
        return IdsInGraph(self.labels, self.num_classes)

    def probabilities(self, logits) -> np.ndarray:
        """Returns float64 of the same shape; see `BertTextClassifier.probabilities`."""
        if self.problem_type == REGRESSION:
            return np.asarray(logits, np.float64)
        return (softmax if self.problem_type == SINGLE_LABEL else sigmoid)(logits)

    def decode(self, values, rows=None, columns=None):
        """Returns a `Classification` for each row of logits `[n, num_classes]`."""
        return self.decided(self.probabilities(values), self.threshold)

    def decided(self, probabilities: np.ndarray, threshold: float | None) -> list[Classification]:
        """Returns a `Classification` for each row of probabilities; `threshold` as in `decide`."""
        names, answers = self.names, []
        decisions = decide(probabilities, self.problem_type, threshold).tolist()
        for scores, decision in zip(probabilities.tolist(), decisions):
            labels = ()  # of a regression
            if self.problem_type == SINGLE_LABEL:
                labels = (names[decision],)
            elif self.problem_type == MULTI_LABEL:
                labels = tuple(itertools.compress(names, decision))
            answers.append(Classification(labels, dict(zip(names, scores))))
        return answers

    @property
    def takes_threshold(self) -> bool:
        """Whether a threshold can decide: between two classes, or on each of several labels."""
        is_binary = self.problem_type == SINGLE_LABEL and self.num_classes == 2
        return is_binary or self.problem_type == MULTI_LABEL

    def require_threshold(self, threshold: float | None) -> None:
        """Raises `UserError` for a threshold that the model cannot use."""
        fits = isinstance(threshold, (int, float)) and 0 <= threshold <= 1 and self.takes_threshold
        rule = "must be in [0, 1], for two classes or several labels per text, or None"
        kind = {"problem_type": self.problem_type, "num_classes": self.num_classes}
        require(threshold is None or fits, rule, threshold=threshold, **kind)

    def positive(self, probabilities: np.ndarray) -> np.ndarray:
        """Returns what a threshold decides on: `[n]` of class 1, or `[n, C]` of several labels."""
        is_binary = self.problem_type == SINGLE_LABEL
        return probabilities[:, POSITIVE_CLASS] if is_binary else probabilities

    @property
    def names(self) -> list[str]:
        """The labels, or as in Hugging Face LABEL_0 and so on."""
        return self.labels or [f"LABEL_{index}" for index in range(self.num_classes)]


_TRUTH_VALUES = {"false": 0, "true": 1}


def refuse_unclear_numbers(labels: Sequence[str] | None) -> None:
    """Refuses labels that are numbers, unless every name that is a number is the id of its class.

    Numbers are clear for the names `["0", "1"]`, but not for `["1", "2"]`.

    Raises:
        DataError: If a number may be a name or an id.
    """
    if any(_number(label) not in (None, place) for place, label in enumerate(labels or ())):
        raise DataError(
            "Labels must be strings if names of classes are numbers other than their ids: "
            f"{list(labels)}. Received: numbers. Pass `[str(label) for label in y]`."
        )


def _number(label):
    """Returns the integer that a name is, or None."""
    try:
        value = float(label)
    except ValueError:
        return _TRUTH_VALUES.get(label.lower())
    return int(value) if value.is_integer() else None


if TYPE_CHECKING:
    import pandas


def answer_columns(
    answers: Sequence[Classification], names: Sequence[str], problem_type: str
) -> dict[str, list[Any]]:
    """Returns answers as columns with a row for each text.

    Args:
        answers: What `classify` returned for n texts.
        names: The names of the classes or numbers, in the order of their ids.
        problem_type: See `BertTextClassifier`.

    Returns:
        `predicted_label` and `probability_<name>` for every class; `predicted_labels`, lists, where
        a text may have several. For a regression `predicted_value`, or `predicted_<name>` for every
        one of several numbers.

    Example:
        >>> from bert_tf.tasks.text_classification import Classification
        >>> answers = [Classification(("good",), {"bad": 0.25, "good": 0.75})]
        >>> answer_columns(answers, ["bad", "good"], "single_label_classification")
        {'predicted_label': ['good'], 'probability_bad': [0.25], 'probability_good': [0.75]}
    """
    scores = {name: [answer.scores[name] for answer in answers] for name in names}
    if problem_type == REGRESSION:
        if len(names) == 1:
            return {"predicted_value": scores[names[0]]}
        return {f"predicted_{name}": values for name, values in scores.items()}
    if problem_type == MULTI_LABEL:
        labels = {"predicted_labels": [list(answer.labels) for answer in answers]}
    else:
        labels = {"predicted_label": [answer.label for answer in answers]}
    return labels | {f"probability_{name}": values for name, values in scores.items()}


def frame_of(columns: dict[str, list[Any]], texts: Any) -> "pandas.DataFrame":
    """Returns columns as a `pandas.DataFrame` with the index of the texts, if they have one.

    Raises:
        UserError: If pandas is not installed.
    """
    pandas = require_package("pandas", "`as_frame`")
    first = texts[0] if isinstance(texts, tuple) and texts else texts  # of two columns
    index = getattr(first, "index", None)
    return pandas.DataFrame(columns, index if isinstance(index, pandas.Index) else None)
