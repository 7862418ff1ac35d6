"""A text regressor as an estimator of scikit-learn."""

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.config import REGRESSION
from bert_tf.sklearn.text_estimator import TextEstimator

_sklearn = require_package("sklearn.base", "bert_tf.sklearn")


class TextRegressor(_sklearn.RegressorMixin, TextEstimator):
    """BERT with a number per text.

    Args:
        checkpoint, epochs, batch_size, learning_rate, options, fit_options, random_state: See
            `TextEstimator`.

    Raises:
        UserError: From `fit`, see `BertTextClassifier`.

    Example:
        >>> from bert_tf.sklearn import TextRegressor
        >>> estimator = TextRegressor("bert-base/", epochs=1)
        >>> estimator.fit(texts, [float(len(text)) for text in texts]).predict(texts[:2]).shape
        (2,)
    """

    def fit(self, X, y, sample_weight=None) -> "TextRegressor":
        """Fine-tunes a model on texts and their numbers."""
        return self._train(X, y, sample_weight, num_classes=1, problem_type=REGRESSION)

    def predict(self, X) -> np.ndarray:
        """Returns the number of each text, float64 `[n]`."""
        return self._outputs(X)[:, 0]
