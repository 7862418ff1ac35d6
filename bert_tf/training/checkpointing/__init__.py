"""Training checkpoints, from which a run is resumed exactly."""

from bert_tf.training.checkpointing.checkpoint_files import DamagedCheckpoint
from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint, load_average

__all__ = ["DamagedCheckpoint", "TrainingCheckpoint", "load_average"]
