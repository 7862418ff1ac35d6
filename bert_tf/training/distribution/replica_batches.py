"""Batches of texts under a `tf.distribute` strategy: each replica gets its own from its worker."""

from collections.abc import Callable

import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.inputs.balanced_rows import ReplicaShare


def replica_batches(
    strategy: tf.distribute.Strategy,
    make_batches: Callable[..., tf.data.Dataset],
    parts: int = 1,
    class_weight: dict[int, float] | None = None,
) -> keras_compat.DistributedAdapter:
    """Returns what Keras takes as `x`: batches that are dealt to the replicas with equal tokens.

    Keras itself would give each replica the next rows of a batch, and each worker other batches
    than a single process has.

    Args:
        strategy: The strategy.
        make_batches: A function: `make_batches(share=share)` is a dataset of the batches of a
            worker, one after the other for its replicas. `share` is its `ReplicaShare`.
        parts: The number of parts that a replica's batch is computed in.
        class_weight: See `keras.Model.fit`.
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
