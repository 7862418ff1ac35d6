"""Losses on class ids and on sentence vectors."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ClassificationLoss": ".sentence_losses",
        "CosineRegressionLoss": ".sentence_losses",
        "MultipleNegativesRankingLoss": ".sentence_losses",
        "SparseCrossentropy": ".sparse_crossentropy",
        "TripletLoss": ".sentence_losses",
        "balanced_class_weights": ".sparse_crossentropy",
    },
)
