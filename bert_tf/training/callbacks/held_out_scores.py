"""Scores of held-out data after each epoch, and the threshold with the best F1."""

import keras
import numpy as np

from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import DataError, UserError, user_error
from bert_tf.training.evaluation.probabilities import POSITIVE_CLASS, softmax
from bert_tf.training.evaluation.scores import all_scores

THRESHOLDS = np.round(np.arange(0.01, 1.0, 0.01), 2)  # 0.01, 0.02 … 0.99


def best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> tuple[float, float]:
    """Finds the threshold among 0.01, 0.02, …, 0.99 with the largest F1.

    `model.threshold = best_threshold(…)[0]` lets a classifier use it, wherever it answers.

    Args:
        labels: 0 or 1, `[n]` or of several labels `[n, C]`, for the F1 over all of them.
        probabilities: An array of the same shape; for two classes, those of class 1.

    Returns:
        The threshold and its F1. Of equally good thresholds, the one nearest to 0.5 is returned.

    Example:
        >>> best_threshold(np.array([0, 1, 1]), np.array([0.2, 0.4, 0.9]))
        (0.4, 1.0)
    """
    labels = np.ravel(labels).astype(bool)
    predicted = np.ravel(probabilities) >= THRESHOLDS[:, np.newaxis]  # [99, n]
    true_positives = (predicted & labels).sum(axis=1)
    positives = predicted.sum(axis=1) + labels.sum()
    f1 = 2.0 * true_positives / np.maximum(positives, 1)
    best = np.flatnonzero(f1 == f1.max())
    nearest = best[np.argmin(np.abs(THRESHOLDS[best] - 0.5))]
    return float(THRESHOLDS[nearest]), float(f1[nearest])


class ThresholdSweep(keras.callbacks.Callback):
    """Finds the `best_threshold` for held-out data after each epoch.

    It adds `val_best_f1` and `val_best_threshold` to the logs of the epoch.

    Args:
        x: Held-out inputs, as the model's `predict` takes them.
        y: Their labels, 0 or 1.
        batch_size: The batch size of `predict`.
        restore_best_weights: Whether the model gets the weights of the best epoch at the end.

    Attributes:
        best_f1, best_threshold, best_epoch: The best F1 of all epochs so far, its threshold and its
            epoch, starting from 0.

    Raises:
        UserError: If a label is neither 0 nor 1.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> sweep = bert_tf.training.ThresholdSweep(texts, model.targets(labels))
        >>> history = model.fit(texts, labels, callbacks=[sweep])
        >>> "val_best_threshold" in history.history
        True
    """

    def __init__(self, x, y, batch_size: int = 32, restore_best_weights: bool = False):
        super().__init__()
        self.x = x
        self.y = np.asarray(y)
        if not np.isin(self.y, (0, 1)).all():
            raise UserError(f"`y` must be 0 or 1. Received: y={np.unique(self.y)[:10]}")
        self.batch_size = batch_size
        self.restore_best_weights = restore_best_weights
        self.best_f1 = -1.0
        self.best_threshold = 0.5
        self.best_epoch = None
        self._best_weights = None

    def on_epoch_end(self, epoch, logs=None):
        logits = self.model.predict(self.x, batch_size=self.batch_size, verbose=0)
        threshold, f1 = best_threshold(self.y, softmax(logits)[:, POSITIVE_CLASS])
        if logs is not None:
            logs["val_best_f1"] = f1
            logs["val_best_threshold"] = threshold
        if f1 > self.best_f1:
            self.best_f1, self.best_threshold, self.best_epoch = f1, threshold, epoch
            if self.restore_best_weights:
                self._best_weights = self.model.get_weights()

    def on_train_end(self, logs=None):
        if self._best_weights is not None:
            self.model.set_weights(self._best_weights)


class EpochScores(keras.callbacks.Callback):
    """Adds every score of `bert_tf.training.all_scores` to the logs, as `val_<name>`.

    For a model of two classes or of several labels, it also adds `val_best_f1` and
    `val_best_threshold`: what `best_threshold` finds.

    Unlike Keras metrics, the scores are exact and defined for all problem types. Put this callback
    before callbacks that monitor a score, such as
    `keras.callbacks.EarlyStopping(monitor="val_matthews")`. Under a `DistillationModel`, the scores
    are those of the student.

    Args:
        x: Held-out inputs, as the model's `predict` takes them.
        y: Their labels, as the model's `fit` takes them.
        batch_size: The batch size of `predict`.

    Raises:
        DataError: At the beginning of `fit`, if the labels are not those of the model, or not one
            for each input.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> scores = bert_tf.training.EpochScores(texts, labels)
        >>> history = model.fit(texts, labels, callbacks=[scores])
        >>> "val_accuracy" in history.history
        True
    """

    def __init__(self, x, y, batch_size: int = 32):
        super().__init__()
        self.x = x
        self.y = y
        self.batch_size = batch_size
        self._gold = None

    def on_train_begin(self, logs=None):
        model = self._scored_model()
        inputs = model.preprocessor.read(self.x)
        # Numbers are ids here, also if names are numbers.
        gold = model.preprocessor.targets(self.y, {})
        if model.problem_type == SINGLE_LABEL and np.ndim(gold) == 2:
            gold = np.argmax(gold, axis=1)
        count = inputs.num_rows if hasattr(inputs, "num_rows") else len(gold)
        if count != len(gold):
            expected = f"have a label for each of the {count} inputs"
            raise user_error("`y`", expected, f"{len(gold)} labels.", DataError)
        self._gold = gold

    def _scored_model(self):
        return getattr(self.model, "student", self.model)

    def on_epoch_end(self, epoch, logs=None):
        model = self._scored_model()
        logits = model.predict(self.x, batch_size=self.batch_size, verbose=0)
        probabilities = model.probabilities(logits)
        results = all_scores(self._gold, probabilities, model.problem_type, model.threshold)
        if model.preprocessor.takes_threshold:
            positive = model.preprocessor.positive(probabilities)
            threshold, f1 = best_threshold(self._gold, positive)
            results |= {"best_f1": f1, "best_threshold": threshold}
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in results.items()})
