"""A text classifier as an estimator of scikit-learn."""

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.config import SINGLE_LABEL
from bert_tf.sklearn.text_estimator import TextEstimator
from bert_tf.training.evaluation import decide

_sklearn = require_package("sklearn.base", "bert_tf.sklearn")
_validation = require_package("sklearn.utils.validation", "bert_tf.sklearn")


class TextClassifier(_sklearn.ClassifierMixin, TextEstimator):
    """BERT with one label per text, for `cross_val_score`, `GridSearchCV`, pipelines, calibration.

    Args:
        checkpoint, epochs, batch_size, learning_rate, options, fit_options, random_state: See
            `TextEstimator`.

    Attributes:
        classes_: The classes, sorted, in the order of `predict_proba`. Of two, the second is the
            positive one, as everywhere.
        model_: See `TextEstimator`. Its labels are the names of `classes_`.

    Raises:
        UserError: From `fit`, see `BertTextClassifier`.
        ValueError: From `fit`, if `y` is not one label per text.

    Example:
        >>> from bert_tf.sklearn import TextClassifier
        >>> estimator = TextClassifier("bert-base/", epochs=1, random_state=0)
        >>> estimator.fit(texts, labels).classes_.tolist()
        ['bad', 'good']
        >>> estimator.predict_proba(["a good film"]).shape
        (1, 2)
    """

    def fit(self, X, y, sample_weight=None) -> "TextClassifier":
        """Fine-tunes a model on texts and their labels: strings, numbers or booleans."""
        self.classes_, ids = np.unique(_validation.column_or_1d(y), return_inverse=True)
        names = [str(name) for name in self.classes_]
        head = {"labels": names, "problem_type": SINGLE_LABEL}
        return self._train(X, [names[number] for number in ids], sample_weight, **head)

    def predict_proba(self, X) -> np.ndarray:
        """Returns the probabilities of `classes_`, float64 `[n, C]`."""
        return self._outputs(X)

    def predict(self, X) -> np.ndarray:
        """Returns one of `classes_` per text, `[n]`, by the `threshold` of the model, if any."""
        probabilities = self.predict_proba(X)
        return self.classes_[decide(probabilities, SINGLE_LABEL, self.model_.threshold)]
