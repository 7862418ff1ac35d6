"""Scores of held-out data after each epoch."""

import keras
import numpy as np

from bert_tf.config import SINGLE_LABEL
from bert_tf.errors import DataError, user_error
from bert_tf.training.callbacks.threshold_sweep import best_threshold
from bert_tf.training.evaluation.scores import all_scores


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
