"""`model.fit` by the step numbers of a whole run."""

from collections.abc import Callable

import keras

from bert_tf.errors import UserError, require
from bert_tf.training.schedules import one_run


def fit_steps(
    model: keras.Model,
    dataset_from: Callable[[int], object],
    num_train_steps: int,
    initial_step: int = 0,
    steps_per_epoch: int = 1000,
    **options,
) -> None:
    """Trains `model` with `model.fit` from step `initial_step` to step `num_train_steps`.

    Epochs end at multiples of `steps_per_epoch`, so a resumed run evaluates at the same steps as an
    uninterrupted run. A schedule without a number of steps is spread over `num_train_steps`.

    Args:
        model: A compiled model.
        dataset_from: A function: `dataset_from(step)` is the dataset that starts with the batch of
            the step after `step`.
        num_train_steps: The number of steps of the whole run.
        initial_step: The number of steps that are done.
        steps_per_epoch: The number of steps of an epoch.
        **options: Arguments of `fit`, such as `callbacks` and `validation_data`.

    Raises:
        UserError: If the run is already complete.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> batch = (model.tokenize(texts), model.targets(labels))
        >>> batches = tf.data.Dataset.from_tensors(batch).repeat()
        >>> bert_tf.training.fit_steps(model, lambda step: batches.skip(step), num_train_steps=2)
        >>> int(model.optimizer.iterations)
        2
    """
    rule = "must be more than the steps that are done"
    is_valid = initial_step < num_train_steps
    require(is_valid, rule, UserError, num_train_steps=num_train_steps, initial_step=initial_step)
    step = initial_step
    with one_run(model, initial_step, num_train_steps):
        while step < num_train_steps:
            epoch, done = divmod(step, steps_per_epoch)
            left = num_train_steps - step
            steps = min(steps_per_epoch - done, left)
            epochs = 1 if done else max(1, left // steps_per_epoch)  # all whole epochs in one call
            model.fit(
                dataset_from(step),
                initial_epoch=epoch,
                epochs=epoch + epochs,
                steps_per_epoch=steps,
                **{"verbose": 0, "shuffle": False, **options},
            )
            step += epochs * steps
