"""scikit-learn baselines without a network: TF-IDF of 1- and 2-grams, and a linear model."""

ANALYZERS = ("word", "char")


def features(analyzer: str = "word"):
    """Returns TF-IDF features of words and word pairs, or of characters (for Chinese)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True)


def classifier(analyzer: str = "word"):
    """Returns a logistic regression on the features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(features(analyzer), LogisticRegression(max_iter=1000))


def multi_label_classifier(analyzer: str = "word"):
    """Returns one logistic regression per label; a label may be on all texts or on none."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    return make_pipeline(features(analyzer), OneVsRestClassifier(LogisticRegression(max_iter=1000)))


def regressor(analyzer: str = "word"):
    """Returns a ridge regression on the features."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    return make_pipeline(features(analyzer), Ridge())
