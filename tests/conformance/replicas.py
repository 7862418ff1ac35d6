"""What test_replicas.py runs in a process of its own: two replicas need two CPU devices."""

import dataclasses

import keras
import tensorflow as tf

from tests.conformance.tasks import CONFIG, ROWS, TASKS, WEIGHTS, make
from tests.models.replicas import two_replicas

TEXT = "text of "  # before the name of a task that is trained on raw text alone
ONE_BLOCK = dataclasses.replace(CONFIG, num_hidden_layers=1)


def fitted(name: str, run_eagerly: bool = True):
    """The logs of two steps, of text of one, and the weights after them.

    Args:
        name: The task, perhaps after `TEXT`.
        run_eagerly: As in `compile`.
    """
    task = TASKS[name.removeprefix(TEXT)]
    is_text = name.startswith(TEXT)
    model = make(task, config=ONE_BLOCK)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=run_eagerly, **task.compiled)
    if is_text:
        dataset = task.dataset_of_text()
    else:
        rows = tf.data.Dataset.from_tensor_slices((task.features, task.targets, WEIGHTS))
        dataset = rows.batch(ROWS - 1)  # the last one leaves the second of two replicas without any
    history = model.fit(dataset, verbose=0).history
    logs = {log: values[0] for log, values in history.items()}
    return logs, [variable.numpy() for variable in model.trained_variables()]


def train(names: list[str], results) -> None:
    """Trains on two replicas and sends what `fitted` gives.

    Args:
        names: Of the tasks, as `fitted` takes them.
        results: The end of a `multiprocessing.Pipe` that takes a tuple for each.
    """
    strategy = two_replicas()
    for name in names:
        with strategy.scope():
            # Text is trained on as a graph; a model of one layer is in tests/models.
            results.send((name, fitted(name, run_eagerly=not name.startswith(TEXT))))
