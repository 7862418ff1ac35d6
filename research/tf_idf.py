"""scikit-learn baselines without a network: TF-IDF of n-grams, and a linear model."""

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL

ANALYZERS = ("word", "char")


def baseline(problem_type=SINGLE_LABEL, analyzer="word", longest=2, C=1.0):
    """Returns a pipeline: logistic regression, one per label, or ridge regression for numbers.

    The features are n-grams of 1 to `longest` words or characters. `C` is the inverse of the
    regularization, as in scikit-learn.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    model = Ridge(1 / C) if problem_type == REGRESSION else LogisticRegression(C=C, max_iter=1000)
    if problem_type == MULTI_LABEL:
        model = OneVsRestClassifier(model)
    return make_pipeline(
        TfidfVectorizer(analyzer=analyzer, ngram_range=(1, longest), sublinear_tf=True), model
    )
