"""Metrics that are watched while training, and scores that are reported."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BinaryAUC": ".metrics",
        "BinaryF1": ".metrics",
        "all_scores": ".scores",
        "bootstrap_intervals": ".bootstrap",
    },
)
