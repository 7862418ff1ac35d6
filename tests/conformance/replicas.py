"""What test_replicas.py runs in a process of its own: two replicas need two CPU devices."""

import keras
import tensorflow as tf

from tests.conformance.task import ONE_BLOCK, ROWS, WEIGHTS, make
from tests.conformance.tasks import TASKS
from tests.models.replicas import two_replicas
from tests.training.processes import send_results

TEXT = "text of "  # before the name of a task that is trained on raw text alone
# Before the name of a task whose steps are traced on replicas, as a whole and in two parts.
TRACED, IN_PARTS = "traced ", "traced in parts "


def task_of(name: str):
    """The task of a name that may begin with `TEXT`, `TRACED` or `IN_PARTS`."""
    for prefix in (TEXT, IN_PARTS, TRACED):
        name = name.removeprefix(prefix)
    return TASKS[name]


def _uneven(targets):
    """With nearly all masked words in the first rows, which are the first replica's."""
    if not isinstance(targets, dict) or "masked_weights" not in targets:
        return targets
    masked_weights = targets["masked_weights"].copy()  # [B, P]
    masked_weights[ROWS // 2 : ROWS - 2] = 0.0
    return {**targets, "masked_weights": masked_weights}


def fitted(name: str, **options):
    """The logs of two steps, of text of one, and the weights after them.

    Args:
        name: The task, perhaps after `TEXT`, `TRACED` or `IN_PARTS`, which say what it trains on.
        **options: Of `compile`. None: eager and in one part.
    """
    task = task_of(name)
    model = make(task, config=ONE_BLOCK)
    options = {"run_eagerly": True, **task.compiled, **options}
    model.compile(keras.optimizers.SGD(0.5), **options)
    if name.startswith(TEXT):
        dataset = task.dataset_of_text()
    else:
        rows = (task.features, _uneven(task.targets), WEIGHTS)
        rows = tf.data.Dataset.from_tensor_slices(rows)
        dataset = rows.batch(ROWS - 1)  # the last one leaves the second of two replicas without any
    history = model.fit(dataset, verbose=0).history
    logs = {log: values[0] for log, values in history.items()}
    return logs, [variable.numpy() for variable in model.trained_variables()]


def train(names: list[str], results) -> None:
    """Trains on two replicas and sends what `fitted` gives.

    Args:
        names: Of the tasks, as `fitted` takes them. Those with something before them are traced.
        results: As `send_results` takes it.
    """
    strategy = two_replicas()

    def fitted_on_two(name):
        parts = 2 if name.startswith(IN_PARTS) else 1
        with strategy.scope():
            return fitted(name, run_eagerly=name in TASKS, gradient_accumulation_steps=parts)

    send_results(results, names, fitted_on_two)
