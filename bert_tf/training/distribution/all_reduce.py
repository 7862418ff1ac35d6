"""Sums over the replicas of a `tf.distribute` strategy, as a step and the optimizers need them."""

from typing import Any

import tensorflow as tf


def sum_over_replicas(
    values: Any, options: tf.distribute.experimental.CommunicationOptions | None = None
) -> Any:
    """Returns the sums of the tensors of a nest over all replicas; with one replica, `values`."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values, options)


def sum_gradients(
    gradients: list[tf.Tensor], dtype: str | None = None, bytes_per_pack: int = 0
) -> list[tf.Tensor]:
    """Returns the sums of gradients over all replicas, in the dtypes of `gradients`.

    With one replica, nothing is rounded.

    Args:
        gradients: The gradients of this replica.
        dtype: The dtype in which they are sent and added. None means their own.
        bytes_per_pack: Gradients are sent together until they have more bytes. 0 leaves it to
            TensorFlow, which sends all together.

    Reference: PyTorch's `bf16_compress_hook` of DistributedDataParallel; `bytes_per_pack` of
    `tf.distribute.experimental.CommunicationOptions`.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return gradients
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
    sent = [tf.cast(gradient, dtype or gradient.dtype) for gradient in gradients]
    sums = sum_over_replicas(sent, options)
    return [tf.cast(total, gradient.dtype) for total, gradient in zip(sums, gradients)]
