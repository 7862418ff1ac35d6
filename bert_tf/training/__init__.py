"""Optimizer, schedule, metrics and callbacks of the original's training recipe."""

from bert_tf.training.adam_weight_decay import AdamWeightDecay
from bert_tf.training.checkpoint_files import DamagedCheckpoint
from bert_tf.training.checkpointing import TrainingCheckpoint
from bert_tf.training.distributed_batches import DistributedBatches
from bert_tf.training.fit_steps import fit_steps
from bert_tf.training.json_lines import JsonLines, read_json_lines
from bert_tf.training.lamb import LAMB
from bert_tf.training.metrics import BinaryAUC, BinaryF1
from bert_tf.training.noam import Noam
from bert_tf.training.peer_watch import PeerWatch
from bert_tf.training.progress_line import ProgressLine
from bert_tf.training.schedules import WarmupLinearDecay
from bert_tf.training.stop_on_bad_loss import StopOnBadLoss
from bert_tf.training.stop_on_signal import StopOnSignal
from bert_tf.training.strategies import STRATEGIES, is_chief, make_strategy
from bert_tf.training.tensorboard_scalars import TensorBoardScalars
from bert_tf.training.threshold_sweep import ThresholdSweep, best_threshold
from bert_tf.training.training_log import TrainingLog
from bert_tf.training.warmup_cosine_decay import WarmupCosineDecay

__all__ = [
    "STRATEGIES",
    "AdamWeightDecay",
    "BinaryAUC",
    "BinaryF1",
    "DamagedCheckpoint",
    "DistributedBatches",
    "JsonLines",
    "LAMB",
    "Noam",
    "PeerWatch",
    "ProgressLine",
    "StopOnBadLoss",
    "StopOnSignal",
    "TensorBoardScalars",
    "ThresholdSweep",
    "TrainingCheckpoint",
    "TrainingLog",
    "WarmupCosineDecay",
    "WarmupLinearDecay",
    "best_threshold",
    "fit_steps",
    "is_chief",
    "make_strategy",
    "read_json_lines",
]
