"""What test_strategies.py runs in a process of its own: two replicas need two CPU devices."""

import tensorflow as tf

from bert_tf.layers.dropout import Dropout
from bert_tf.training.distribution import make_strategy
from bert_tf.training.distribution.strategies import end_together, largest_of_workers
from tests.training.processes import send_results


def results(names: list[str], results) -> None:
    """Sends what `find` computes for each name."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = make_strategy("mirrored")
    with strategy.scope():
        dropout = Dropout(0.5, seed=3)
    ones = tf.ones([1000])

    def masks():
        """The units that each replica keeps, in two steps."""
        step = tf.function(lambda: strategy.run(lambda: dropout(ones, training=True)))
        return [[one.numpy() > 0 for one in step().values] for _ in range(2)]

    def exchange():
        end_together(strategy)  # without other workers it returns at once
        return [largest_of_workers(strategy, number) for number in (7, -2)]

    work = {"replicas": lambda: strategy.num_replicas_in_sync, "masks": masks, "largest": exchange}
    send_results(results, names, lambda name: work[name]())
