"""Callbacks: logs, scores after each epoch, gradual unfreezing, stopping."""

from bert_tf.training.callbacks.epoch_scores import EpochScores
from bert_tf.training.callbacks.event_file import TensorBoardScalars
from bert_tf.training.callbacks.gradual_unfreezing import GradualUnfreezing
from bert_tf.training.callbacks.heartbeat import Heartbeat
from bert_tf.training.callbacks.json_lines import JsonLines, read_json_lines
from bert_tf.training.callbacks.progress_line import ProgressLine
from bert_tf.training.callbacks.stop_on_signal import StopOnSignal
from bert_tf.training.callbacks.tensorboard_histograms import TensorBoardHistograms
from bert_tf.training.callbacks.terminate_on_bad_loss import TerminateOnBadLoss
from bert_tf.training.callbacks.threshold_sweep import ThresholdSweep, best_threshold
from bert_tf.training.callbacks.training_log import TrainingLog

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
