"""Callbacks: logs, scores after each epoch, gradual unfreezing, stopping."""

from bert_tf.training.callbacks.held_out_scores import EpochScores, ThresholdSweep, best_threshold
from bert_tf.training.callbacks.stopping import Heartbeat, StopOnSignal, TerminateOnBadLoss
from bert_tf.training.callbacks.tensorboard import TensorBoardHistograms, TensorBoardScalars
from bert_tf.training.callbacks.training_log import (
    JsonLines,
    ProgressLine,
    TrainingLog,
    read_json_lines,
)
from bert_tf.training.freezing import GradualUnfreezing

__all__ = [
    "EpochScores",
    "GradualUnfreezing",
    "Heartbeat",
    "JsonLines",
    "ProgressLine",
    "StopOnSignal",
    "TensorBoardHistograms",
    "TensorBoardScalars",
    "TerminateOnBadLoss",
    "ThresholdSweep",
    "TrainingLog",
    "best_threshold",
    "read_json_lines",
]
