"""Losses on class ids, on sentence vectors and on scores of documents."""

from bert_tf.training.losses.gist_embed_loss import GISTEmbedLoss
from bert_tf.training.losses.relevance_losses import DocumentRankingLoss
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
from bert_tf.training.losses.splade_loss import SpladeLoss

__all__ = [
    "CachedMultipleNegativesRankingLoss",
    "ClassificationLoss",
    "CosineRegressionLoss",
    "DocumentRankingLoss",
    "GISTEmbedLoss",
    "MarginMSELoss",
    "MatryoshkaLoss",
    "MultipleNegativesRankingLoss",
    "SparseCrossentropy",
    "SpladeLoss",
    "TripletLoss",
    "balanced_class_weights",
]
