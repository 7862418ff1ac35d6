"""Writes the log of a run for TensorBoard."""

import os

from bert_tf.training.callbacks.event_file import EventFile


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
        self._file = EventFile(directory)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Writes the values. Raises `UserError` if the files cannot be written."""
        self._file.write(step, scalars=values)
