"""Writes the log of a run for TensorBoard."""

import os

import tensorflow as tf

# As `tf.summary.scalar` writes it. That function cannot be used, because it needs TensorBoard.
_METADATA = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class=1,  # DATA_CLASS_SCALAR of tensorflow/core/framework/summary.proto
)


class TensorBoardScalars:
    """Writes each value as a scalar per step: `tensorboard --logdir=<directory>` shows them.

    Args:
        directory: The directory of the event files. Each start of a run adds a file.

    Example:
        >>> scalars = bert_tf.training.callbacks.TensorBoardScalars("tensorboard")
        >>> scalars.write(100, {"loss": 0.5})
    """

    def __init__(self, directory: str | os.PathLike):
        self.directory = os.fspath(directory)
        self._writer = None

    def write(self, step: int, values: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.directory)
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=_METADATA)
        self._writer.flush()
