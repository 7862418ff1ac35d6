"""Optimizer, schedule, metrics and callbacks of the original's training recipe."""

from bert_tf.training.adam_weight_decay import AdamWeightDecay
from bert_tf.training.metrics import BinaryAUC, BinaryF1
from bert_tf.training.schedules import WarmupLinearDecay
from bert_tf.training.threshold_sweep import ThresholdSweep, best_threshold

__all__ = [
    "AdamWeightDecay",
    "BinaryAUC",
    "BinaryF1",
    "ThresholdSweep",
    "WarmupLinearDecay",
    "best_threshold",
]
