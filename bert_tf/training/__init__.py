"""Training: optimizers, schedules, losses, callbacks, scores, checkpoints, `tf.distribute`.

The names that most programs use can be imported from here, all others from the sub-packages.
"""

from bert_tf.training.callbacks import EpochScores, GradualUnfreezing, ThresholdSweep
from bert_tf.training.checkpointing import TrainingCheckpoint, load_average
from bert_tf.training.distribution import make_strategy, pipeline_stages
from bert_tf.training.evaluation import BinaryAUC, BinaryF1, all_scores
from bert_tf.training.freezing import freeze_layers, reinitialize_top_layers
from bert_tf.training.losses import (
    CachedMultipleNegativesRankingLoss,
    ClassificationLoss,
    CosineRegressionLoss,
    GISTEmbedLoss,
    MarginMSELoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    SparseCrossentropy,
    TripletLoss,
    balanced_class_weights,
)
from bert_tf.training.optimizers import LAMB, AdamWeightDecay
from bert_tf.training.schedules import Noam, WarmupCosineDecay, WarmupLinearDecay, fit_steps

__all__ = [
    "LAMB",
    "AdamWeightDecay",
    "BinaryAUC",
    "BinaryF1",
    "CachedMultipleNegativesRankingLoss",
    "ClassificationLoss",
    "CosineRegressionLoss",
    "EpochScores",
    "GISTEmbedLoss",
    "GradualUnfreezing",
    "MarginMSELoss",
    "MatryoshkaLoss",
    "MultipleNegativesRankingLoss",
    "Noam",
    "SparseCrossentropy",
    "ThresholdSweep",
    "TrainingCheckpoint",
    "TripletLoss",
    "WarmupCosineDecay",
    "WarmupLinearDecay",
    "all_scores",
    "balanced_class_weights",
    "fit_steps",
    "freeze_layers",
    "load_average",
    "make_strategy",
    "pipeline_stages",
    "reinitialize_top_layers",
]
