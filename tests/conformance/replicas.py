"""What test_replicas.py runs in a process of its own: two replicas need two CPU devices."""

import dataclasses

import keras

from bert_tf import BertTokenizer
from tests.conformance.tasks import CONFIG, TASKS, VOCABULARY, make
from tests.models.replicas import two_replicas

TEXT = "text of "  # before the name of a task that is trained on raw text alone
CASED = BertTokenizer(VOCABULARY, lowercase=False)  # fewer operations: TensorFlow starts sooner
ONE_BLOCK = dataclasses.replace(CONFIG, num_hidden_layers=1)


def train(names: list[str], results) -> None:
    """Takes a step of each task on two replicas and sends its logs and weights.

    Args:
        names: The tasks, some after `TEXT`.
        results: The end of a `multiprocessing.Pipe` that takes a tuple for each.
    """
    strategy = two_replicas()
    for name in names:
        is_text, task = name.startswith(TEXT), TASKS[name.removeprefix(TEXT)]
        with strategy.scope():
            model = make(task, config=ONE_BLOCK, **({"tokenizer": CASED} if is_text else {}))
            # Text is trained on as a graph. Those of one layer are in tests/models.
            model.compile(keras.optimizers.SGD(0.5), run_eagerly=not is_text, **task.compiled)
        dataset = task.dataset_of_text() if is_text else task.dataset_of_tokens()
        history = model.fit(dataset, verbose=0).history
        logs = {log: values[0] for log, values in history.items()}
        weights = [variable.numpy() for variable in model.trained_variables()]
        results.send((name, (logs, weights)))
