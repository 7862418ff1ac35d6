"""What test_replicas.py runs in a process of its own: two replicas need two CPU devices."""

import keras
import tensorflow as tf

from tests.conformance.tasks import TASKS, make


def train(names: list[str], results) -> None:
    """Takes a step of each task on two replicas and sends its logs and weights.

    Args:
        names: The tasks.
        results: The end of a `multiprocessing.Pipe` that takes a tuple for each.
    """
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for name in names:
        task = TASKS[name]
        with strategy.scope():
            model = make(task)
            model.compile(keras.optimizers.SGD(0.5), **task.compiled)
        history = model.fit(task.dataset_of_tokens(), verbose=0).history
        logs = {log: values[0] for log, values in history.items()}
        results.send((name, logs, [variable.numpy() for variable in model.trained_variables()]))
