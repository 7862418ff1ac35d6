"""Training checkpoints, from which a run is resumed exactly."""

from bert_tf.training.checkpointing.checkpoint_average import load_average
from bert_tf.training.checkpointing.checkpoint_files import DamagedCheckpoint
from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint

__all__ = ["DamagedCheckpoint", "TrainingCheckpoint", "load_average"]
