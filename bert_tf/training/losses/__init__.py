"""Losses on class ids and on sentence vectors."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("AnglELoss", "CoSENTLoss"), ".score_losses"),
        **dict.fromkeys(("CosineRegressionLoss", "MarginMSELoss"), ".score_losses"),
        **dict.fromkeys(("BatchAllTripletLoss", "BatchHardTripletLoss"), ".triplet_losses"),
        **dict.fromkeys(("BatchSemiHardTripletLoss", "TripletLoss"), ".triplet_losses"),
        "CachedMultipleNegativesRankingLoss": ".ranking_losses",
        "ClassificationLoss": ".classification_loss",
        **dict.fromkeys(("ContrastiveLoss", "OnlineContrastiveLoss"), ".contrastive_losses"),
        "GISTEmbedLoss": ".gist_embed_loss",
        "MatryoshkaLoss": ".matryoshka_loss",
        "MultipleNegativesRankingLoss": ".ranking_losses",
        "OrdinalLogLoss": ".ordinal_log_loss",
        "SentenceLoss": ".sentence_loss",
        **dict.fromkeys(("SparseCrossentropy", "balanced_class_weights"), ".sparse_crossentropy"),
    },
)
