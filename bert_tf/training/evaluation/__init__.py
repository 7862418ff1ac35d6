"""Metrics for use during training; scores of a whole evaluation set and their pictures."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("BinaryAUC", "BinaryF1"), ".metrics"),
        "all_scores": ".scores",
        "bootstrap_intervals": ".bootstrap",
        **dict.fromkeys(("draw_confusion", "draw_curves", "draw_history"), ".pictures"),
        "score_rankings": ".ranking",
        **dict.fromkeys(("decide", "sigmoid", "softmax"), ".probabilities"),
    },
)
