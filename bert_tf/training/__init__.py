"""Optimizer, schedule, metrics and callbacks of the original's training recipe."""

from bert_tf.training.adam_weight_decay import AdamWeightDecay
from bert_tf.training.bootstrap import bootstrap_intervals
from bert_tf.training.checkpoint_files import DamagedCheckpoint
from bert_tf.training.checkpointing import TrainingCheckpoint
from bert_tf.training.distributed_batches import DistributedBatches
from bert_tf.training.epoch_scores import EpochScores
from bert_tf.training.fit_steps import fit_steps
from bert_tf.training.freezing import freeze_layers
from bert_tf.training.gradual_unfreezing import GradualUnfreezing
from bert_tf.training.head_importance import head_importance
from bert_tf.training.head_selection import least_important_heads
from bert_tf.training.json_lines import JsonLines, read_json_lines
from bert_tf.training.lamb import LAMB
from bert_tf.training.metrics import BinaryAUC, BinaryF1
from bert_tf.training.noam import Noam
from bert_tf.training.peer_watch import PeerWatch
from bert_tf.training.progress_line import ProgressLine
from bert_tf.training.reinitialization import reinitialize_top_layers
from bert_tf.training.schedules import WarmupLinearDecay
from bert_tf.training.scores import all_scores
from bert_tf.training.sentence_losses import (
    ClassificationLoss,
    CosineRegressionLoss,
    MultipleNegativesRankingLoss,
    TripletLoss,
)
from bert_tf.training.sparse_crossentropy import SparseCrossentropy, balanced_class_weights
from bert_tf.training.squad_metrics import best_null_thresholds, squad_intervals, squad_scores
from bert_tf.training.stop_on_bad_loss import StopOnBadLoss
from bert_tf.training.stop_on_signal import StopOnSignal
from bert_tf.training.strategies import STRATEGIES, is_chief, make_strategy
from bert_tf.training.tagging_report import tagging_intervals
from bert_tf.training.tagging_scores import TaggingScores, tagging_scores
from bert_tf.training.tensorboard_scalars import TensorBoardScalars
from bert_tf.training.threshold_sweep import ThresholdSweep, best_threshold
from bert_tf.training.training_log import TrainingLog
from bert_tf.training.warmup_cosine_decay import WarmupCosineDecay

__all__ = [
    "LAMB",
    "STRATEGIES",
    "AdamWeightDecay",
    "BinaryAUC",
    "BinaryF1",
    "ClassificationLoss",
    "CosineRegressionLoss",
    "DamagedCheckpoint",
    "DistributedBatches",
    "EpochScores",
    "GradualUnfreezing",
    "JsonLines",
    "MultipleNegativesRankingLoss",
    "Noam",
    "PeerWatch",
    "ProgressLine",
    "SparseCrossentropy",
    "StopOnBadLoss",
    "StopOnSignal",
    "TaggingScores",
    "TensorBoardScalars",
    "ThresholdSweep",
    "TrainingCheckpoint",
    "TrainingLog",
    "TripletLoss",
    "WarmupCosineDecay",
    "WarmupLinearDecay",
    "all_scores",
    "balanced_class_weights",
    "best_null_thresholds",
    "best_threshold",
    "bootstrap_intervals",
    "fit_steps",
    "freeze_layers",
    "head_importance",
    "is_chief",
    "least_important_heads",
    "make_strategy",
    "read_json_lines",
    "reinitialize_top_layers",
    "squad_intervals",
    "squad_scores",
    "tagging_intervals",
    "tagging_scores",
]
