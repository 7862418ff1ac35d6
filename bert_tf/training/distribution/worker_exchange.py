"""What the workers of a run send each other outside of the training steps."""

import contextlib
import functools

import tensorflow as tf

from bert_tf.training.distribution.strategies import worker_addresses


def largest_of_workers(strategy: tf.distribute.Strategy, number: int) -> int:
    """Returns the largest `number` of all workers. All workers must call it."""
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([number], tf.int32)
    )
    return int(_largest_function(strategy)(values))


@functools.lru_cache(maxsize=1)
def _largest_function(strategy):
    """Returns the function of a strategy, which is traced once and not at every exchange."""
    return tf.function(lambda value: tf.reduce_max(strategy.gather(value, axis=0)))


def end_together(strategy: tf.distribute.Strategy) -> None:
    """Waits until no worker needs this one any more. All workers must call it before they exit."""
    if not worker_addresses(strategy):
        return
    largest_of_workers(strategy, 0)  # all have come here
    # A worker that has received all parts of an exchange may exit before a slower one has received
    # its own. In a second exchange that is no fault: every worker is through with the first one.
    with contextlib.suppress(tf.errors.OpError):
        largest_of_workers(strategy, 0)
