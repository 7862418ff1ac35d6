"""Estimators of scikit-learn around a text classifier and regressor."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"TextClassifier": ".text_classifier", "TextRegressor": ".text_regressor"}
)
