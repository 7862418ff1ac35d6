"""What `BertTextClassifier` reads and answers: labels by name or id, probabilities of classes."""

import dataclasses
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import UserError
from bert_tf.inputs.columns import is_container, plain_rows
from bert_tf.inputs.labels import (
    IdsInGraph,
    class_ids,
    class_sets,
    holds_numbers,
    read_regression_labels,
)
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.tasks.text_classification.number_names import refuse_unclear_numbers
from bert_tf.training.evaluation.probabilities import sigmoid, softmax

# The smallest probability of a label that a text has, where it may have several.
LABEL_THRESHOLD = 0.5


class Classification(NamedTuple):
    """What a text is classified as.

    Attributes:
        labels: The most probable label; where a text may have several, all with a probability of at
            least 0.5. Empty for a regression.
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

    def targets(self, y, x):
        """Returns the targets; labels may be given by their names."""
        if not is_container(y):
            return y
        y = plain_rows(y, "y")
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
            raise UserError(
                "Several labels in a dataset must be rows of 0 and 1, as `targets` makes them. "
                "Received: strings"
            )
        return IdsInGraph(self.labels, self.num_classes)

    def probabilities(self, logits) -> np.ndarray:
        """Returns float64 of the same shape; see `BertTextClassifier.probabilities`."""
        if self.problem_type == REGRESSION:
            return np.asarray(logits, np.float64)
        return (softmax if self.problem_type == SINGLE_LABEL else sigmoid)(logits)

    def decode(self, values, rows, columns):
        return self.answers(values)

    def answers(self, logits) -> list[Classification]:
        """Returns a `Classification` for each row of logits `[n, num_classes]`."""
        rows = [dict(zip(self.names, row)) for row in self.probabilities(logits).tolist()]
        return [Classification(self._labels_of(scores), scores) for scores in rows]

    @property
    def names(self) -> list[str]:
        """The labels, or as in Hugging Face LABEL_0 and so on."""
        return self.labels or [f"LABEL_{index}" for index in range(self.num_classes)]

    def _labels_of(self, scores):
        if self.problem_type == REGRESSION:
            return ()
        if self.problem_type == SINGLE_LABEL:
            return (max(scores, key=scores.get),)
        return tuple(name for name, score in scores.items() if score >= LABEL_THRESHOLD)
