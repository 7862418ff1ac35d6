"""scikit-learn baselines without a network: TF-IDF of 1- and 2-grams, and a linear model."""

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL

ANALYZERS = ("word", "char")


def baseline(problem_type=SINGLE_LABEL, analyzer="word"):
    """Returns a pipeline: logistic regression, one per label, or ridge regression for numbers."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    model = Ridge() if problem_type == REGRESSION else LogisticRegression(max_iter=1000)
    if problem_type == MULTI_LABEL:
        model = OneVsRestClassifier(model)
    return make_pipeline(
        TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True), model
    )
