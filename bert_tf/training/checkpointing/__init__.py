"""Checkpoints of a training, from which it goes on step-exactly."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {"DamagedCheckpoint": ".checkpoint_files", "TrainingCheckpoint": ".training_checkpoint"},
)
