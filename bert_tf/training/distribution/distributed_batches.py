"""The batches of a run by step, divided among the workers and devices of a strategy."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from bert_tf.errors import UserError


@dataclasses.dataclass(eq=False)
class DistributedBatches:
    """The batches for `fit` from any step, under any `tf.distribute` strategy.

    Args:
        read: A function: `read(batch_size, start_step, num_shards, shard_index)` is a dataset of
            batches, as `pretraining_records` and `pretraining_text` return it.
        batch_size: The number of rows of a step, on all devices.
        strategy: The strategy, which divides each batch.
        by_rows: Whether each worker reads every batch and uses its own rows, so that the batches do
            not depend on the number of workers. If False, each worker reads a shard.
        num_batches: The number of steps. None means as many as `read` returns.

    Raises:
        UserError: If `batch_size` is not a multiple of the number of devices.

    Example:
        >>> def read(batch_size, start_step, num_shards, shard_index):
        ...     rows = tf.data.Dataset.range(start_step * batch_size, 1000)
        ...     return rows.batch(batch_size, drop_remainder=True)
        >>> batches = DistributedBatches(read, 4, tf.distribute.get_strategy())
        >>> next(iter(batches.from_step(100))).numpy()
        array([400, 401, 402, 403])
    """

    read: Callable[..., tf.data.Dataset]
    batch_size: int
    strategy: tf.distribute.Strategy
    by_rows: bool = True
    num_batches: int | None = None

    def __post_init__(self):
        self.devices = self.strategy.num_replicas_in_sync
        if self.batch_size % self.devices:
            raise UserError(
                f"`batch_size` must be a multiple of the number of devices, {self.devices}. "
                f"Received: batch_size={self.batch_size}"
            )

    def from_step(self, step: int):
        """Returns the batches of the steps after `step` for `fit` and `evaluate`."""
        return self.strategy.distribute_datasets_from_function(
            lambda context: self.of_worker(
                step, context.num_input_pipelines, context.input_pipeline_id
            )
        )

    def of_worker(self, step: int, workers: int, worker: int) -> tf.data.Dataset:
        """Returns a worker's part of the batches after `step`: one batch per step and device."""
        per_device = self.batch_size // self.devices
        local_devices = self.devices // workers
        if workers == 1 or not self.by_rows:
            batches = self.read(per_device, step * local_devices, workers, worker)
        else:
            rows = per_device * local_devices
            first = worker * rows

            def own(*batch):
                def cut(values):  # [batch_size, ...] -> [local_devices, per_device, ...]
                    shape = [local_devices, per_device, *values.shape[1:]]
                    return tf.reshape(values[first : first + rows], shape)

                return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(cut, batch))

            batches = self.read(self.batch_size, step, 1, 0)
            batches = batches.flat_map(own).prefetch(tf.data.AUTOTUNE)
        return batches.take(-1 if self.num_batches is None else self.num_batches * local_devices)

    def batch_at(self, step: int):
        """Returns the whole batch of the step after `step`."""
        return next(iter(self.read(self.batch_size, step, 1, 0)))
