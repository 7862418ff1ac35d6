"""What test_strategies.py runs in a process of its own: two replicas need two CPU devices."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.layers.dropout import Dropout
from bert_tf.training import LAMB, AdamWeightDecay
from bert_tf.training.distribution import make_strategy
from bert_tf.training.distribution.strategies import end_together, largest_of_workers
from tests.training.distribution import gradient_sums
from tests.training.processes import send_results


def trained(kind, strategy, dtype):
    """The weights after three steps, whose gradients add up to 3 on every number of replicas."""
    with strategy.scope():
        optimizer = kind(0.1, layer_decay=0.5, dynamic_loss_scale=True)
        variables = [
            keras.Variable(np.ones(shape), dtype=dtype, name=name)
            for name, shape in (("kernel", [3, 5]), ("bias", [7]), ("layer_0", [2, 2]))
        ]
        optimizer.build(variables)

    @tf.function
    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        factor = tf.cast(replica + 1, dtype) if strategy.num_replicas_in_sync == 2 else 3.0
        scale = tf.cast(optimizer.loss_scale.value, dtype)
        optimizer.apply([factor * scale * tf.ones(v.shape, dtype) for v in variables], variables)

    for _ in range(3):
        strategy.run(step)
    return [np.asarray(variable, np.float32) for variable in variables]


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

    def optimizers():
        """Largest differences between two replicas and one."""
        return [
            max(
                np.abs(mine - theirs).max()
                for mine, theirs in zip(
                    trained(kind, strategy, dtype),
                    trained(kind, tf.distribute.get_strategy(), dtype),
                )
            )
            for kind in (AdamWeightDecay, LAMB)
            for dtype in ("float32", "bfloat16")
        ]

    work = {
        "replicas": lambda: strategy.num_replicas_in_sync,
        "masks": masks,
        "largest": exchange,
        "optimizers": optimizers,
        "sums": lambda: gradient_sums.require_sums(strategy),
        "clip": lambda: gradient_sums.require_clip_of_the_sum(strategy),
    }
    send_results(results, names, lambda name: work[name]())
