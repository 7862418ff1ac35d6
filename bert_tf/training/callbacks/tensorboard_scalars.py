"""The log of a run for TensorBoard."""

import os

import tensorflow as tf

# What TensorBoard's `tf.summary.scalar` writes beside the value; that function needs TensorBoard
# installed, which training should not.
_METADATA = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"),
    data_class=1,  # DATA_CLASS_SCALAR of tensorflow/core/framework/summary.proto
)


class TensorBoardScalars:
    """Writes each value as a scalar over the steps: `tensorboard --logdir=<directory>` shows them.

    Args:
        directory: Of the event files; a restarted run adds one.

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
