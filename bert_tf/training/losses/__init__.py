"""Losses on class ids and on sentence vectors."""

from bert_tf.training.losses.gist_embed_loss import GISTEmbedLoss
from bert_tf.training.losses.sentence_losses import (
    CachedMultipleNegativesRankingLoss,
    ClassificationLoss,
    CosineRegressionLoss,
    MarginMSELoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    TripletLoss,
)
from bert_tf.training.losses.sparse_crossentropy import SparseCrossentropy, balanced_class_weights

__all__ = [
    "CachedMultipleNegativesRankingLoss",
    "ClassificationLoss",
    "CosineRegressionLoss",
    "GISTEmbedLoss",
    "MarginMSELoss",
    "MatryoshkaLoss",
    "MultipleNegativesRankingLoss",
    "SparseCrossentropy",
    "TripletLoss",
    "balanced_class_weights",
]
