"""What TensorBoard reads, written without TensorBoard.

`tf.summary.scalar` and `tf.summary.histogram` cannot be used, because they need TensorBoard. Here
their tensors and metadata are written by `tf.summary.write`.
"""

import os

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError

NUM_BUCKETS = 30  # tensorboard/plugins/histogram/summary_v2.py, DEFAULT_BUCKET_COUNT
# DATA_CLASS_SCALAR and DATA_CLASS_TENSOR of tensorflow/core/framework/summary.proto
_SCALAR, _TENSOR = 1, 2


def _metadata(plugin_name, data_class):
    plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin_name)
    return tf.compat.v1.SummaryMetadata(plugin_data=plugin, data_class=data_class)


_SCALARS = _metadata("scalars", _SCALAR)
_HISTOGRAMS = _metadata("histograms", _TENSOR)


class EventFile:
    """Scalars and histograms of steps.

    Args:
        directory: The directory of the event files. Each start of a run adds a file.

    Example:
        >>> from bert_tf.training.callbacks.event_file import EventFile
        >>> EventFile("tensorboard").write(100, scalars={"loss": 0.5})
    """

    def __init__(self, directory: str | os.PathLike):
        self.directory = os.fspath(directory)
        self._writer = None

    def write(
        self,
        step: int,
        scalars: dict[str, float] | None = None,
        histograms: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Writes the values of a step.

        Args:
            step: The step.
            scalars: Numbers by name.
            histograms: Rows of left edge, right edge and count, `[K, 3]`, by name.

        Raises:
            UserError: If the files cannot be written.
        """
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self.directory)
            with self._writer.as_default(step):
                for name, value in (scalars or {}).items():
                    tf.summary.write(name, tf.constant(value, tf.float32), metadata=_SCALARS)
                for name, rows in (histograms or {}).items():
                    tf.summary.write(name, tf.constant(rows, tf.float64), metadata=_HISTOGRAMS)
            self._writer.flush()
        except tf.errors.OpError as error:
            # "{{node}} path; what the system said", and then lines of what follows from it.
            reason = error.message.splitlines()[0].rpartition("; ")[2]
            raise UserError(
                f"{self.directory} must be a writable directory. Received at step {step}: "
                f"{reason}. Make room and start again: the run is resumed from its newest "
                "checkpoint."
            ) from None


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


def histogram(values: np.ndarray, limits: tuple[float, float] | None = None) -> np.ndarray:
    """Returns the buckets of values, as `tf.summary.histogram` makes them.

    Args:
        values: Numbers, of any shape. Those that are not finite are not counted.
        limits: The first and the last edge; None for the least and the greatest value.

    Returns:
        float64 `[K, 3]`: the left edge, the right edge and the count of each bucket.

    Example:
        >>> from bert_tf.training.callbacks.event_file import histogram
        >>> histogram(np.array([0.0, 0.1, 1.0]))[0]
        array([0.        , 0.03333333, 1.        ])
    """
    values = np.asarray(values, np.float64).ravel()
    values = values[np.isfinite(values)]
    if limits is None and len(values):
        limits = values.min(), values.max()
    if limits is None or limits[0] == limits[1]:
        # All are equal, or there is none: one bucket has all of them.
        edge = limits[0] if limits else 0.0
        return np.array([[edge, edge, 0]] * (NUM_BUCKETS - 1) + [[edge, edge, len(values)]])
    counts, edges = np.histogram(values, NUM_BUCKETS, limits)
    return np.stack([edges[:-1], edges[1:], counts], axis=1)
