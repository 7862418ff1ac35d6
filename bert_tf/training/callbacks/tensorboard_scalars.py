"""Writes the log of a run for TensorBoard."""

import os

import tensorflow as tf

from bert_tf.errors import UserError

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
        """Writes the values. Raises `UserError` if the files cannot be written."""
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self.directory)
            with self._writer.as_default(step):
                for name, value in values.items():
                    tf.summary.write(name, tf.constant(value, tf.float32), metadata=_METADATA)
            self._writer.flush()
        except tf.errors.OpError as error:
            # "{{node}} path; what the system said", and then lines of what follows from it.
            reason = error.message.splitlines()[0].rpartition("; ")[2]
            raise UserError(
                f"{self.directory} must be a writable directory. Received at step {step}: "
                f"{reason}. Make room and start again: the run is resumed from its newest "
                "checkpoint."
            ) from None
