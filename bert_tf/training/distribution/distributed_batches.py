"""Batches under a `tf.distribute` strategy, divided among its workers and devices."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError, require
from bert_tf.inputs.balanced_rows import ReplicaShare, deal_in_graph


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
        lengths: A function from a batch to the number of tokens of each row, int64 `[B]`. The rows
            that a worker reads (with `by_rows` all rows of a step) are then dealt so that all
            devices have equal tokens. See `deal_rows`. None leaves the rows in their order.
        deals: Whether `read` deals the rows itself: `num_shards` is then the number of devices, and
            `shard_index` lists those of the worker, whose batches come in turn.
        parts: The number of parts that a device's batch is computed in, with `lengths`.

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
    lengths: Callable[[Any], tf.Tensor] | None = None
    deals: bool = False
    parts: int = 1

    def __post_init__(self):
        self.devices = self.strategy.num_replicas_in_sync
        rule = f"must be a multiple of the number of devices, {self.devices}"
        require(self.batch_size % self.devices == 0, rule, UserError, batch_size=self.batch_size)

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
        first = worker * local_devices
        if self.deals and self.devices > 1:
            own_devices = range(first, first + local_devices)
            batches = self.read(per_device, step, self.devices, own_devices)
        elif self.by_rows and (workers > 1 or self._balances()):
            batches = self.read(self.batch_size, step, 1, 0)
            batches = self._dealt(batches, self.devices, first, local_devices)
        elif self._balances() and local_devices > 1:
            batches = self.read(per_device * local_devices, step, workers, worker)
            batches = self._dealt(batches, local_devices, 0, local_devices)
        else:
            batches = self.read(per_device, step * local_devices, workers, worker)
        return batches.take(-1 if self.num_batches is None else self.num_batches * local_devices)

    def _balances(self):
        return self.lengths is not None and self.devices > 1

    def _dealt(self, batches, devices, first, count):
        """Returns the batches of `count` of the devices that share each batch, in turn."""

        per_device = self.batch_size // self.devices

        def own(*batch):
            order = None
            if self._balances():
                order, _ = deal_in_graph(self.lengths(*batch), devices, self.parts)

            def cut(values):  # [devices * per_device, ...] -> [count, per_device, ...]
                rows = slice(first * per_device, (first + count) * per_device)
                own = values[rows] if order is None else tf.gather(values, order[rows])
                return tf.reshape(own, [count, per_device, *values.shape[1:]])

            return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(cut, batch))

        return batches.flat_map(own).prefetch(tf.data.AUTOTUNE)

    def batch_at(self, step: int):
        """Returns the whole batch of the step after `step`."""
        return next(iter(self.read(self.batch_size, step, 1, 0)))


def replica_batches(
    strategy: tf.distribute.Strategy,
    make_batches: Callable[..., tf.data.Dataset],
    parts: int = 1,
    class_weight: dict[int, float] | None = None,
) -> keras_compat.DistributedAdapter:
    """Returns what Keras takes as `x`: batches that are dealt to the replicas with equal tokens.

    Keras itself would give each replica the next rows of a batch, and each worker other batches
    than a single process has. `make_batches(share=share)` is a dataset of the batches of a worker,
    one after the other for its replicas; `share` is its `ReplicaShare`. `parts` is the number of
    parts that a replica's batch is computed in.
    """
    replicas = strategy.num_replicas_in_sync
    local = []

    def of_worker(context):
        count = replicas // context.num_input_pipelines
        local.append(count)
        share = ReplicaShare(replicas, context.input_pipeline_id * count, count, parts)
        return keras_compat.weighted_by_class(make_batches(share=share), class_weight)

    dataset = strategy.distribute_datasets_from_function(of_worker)
    return keras_compat.DistributedAdapter(dataset, batches_per_step=local[0])
