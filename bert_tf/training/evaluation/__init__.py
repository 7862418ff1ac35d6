"""Metrics for use during training; scores of a whole evaluation set and their pictures."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("BinaryAUC", "BinaryF1"), ".metrics"),
        **dict.fromkeys(("all_scores", "bootstrap_intervals"), ".scores"),
        **dict.fromkeys(("draw_confusion", "draw_curves", "draw_history"), ".reports"),
        "compare_systems": ".significance",
        "score_rankings": ".ranking",
        **dict.fromkeys(("decide", "sigmoid", "softmax"), ".probabilities"),
    },
)
