"""The baseline without a network: TF-IDF of 1- and 2-grams and a linear model, by scikit-learn."""

ANALYZERS = ("word", "char")


def features(analyzer: str = "word"):
    """TF-IDF of words and word pairs, or of characters and pairs of them (for Chinese)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True)


def classifier(analyzer: str = "word"):
    """Logistic regression on the features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(features(analyzer), LogisticRegression(max_iter=1000))


def multi_label_classifier(analyzer: str = "word"):
    """Logistic regression for every label by itself; a label may be on all texts, or on none."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    return make_pipeline(features(analyzer), OneVsRestClassifier(LogisticRegression(max_iter=1000)))


def regressor(analyzer: str = "word"):
    """Ridge regression on the features."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    return make_pipeline(features(analyzer), Ridge())
