"""`model.fit` by steps of a whole run."""

from collections.abc import Callable

import keras

from bert_tf.errors import UserError


def fit_steps(
    model: keras.Model,
    dataset_from: Callable[[int], object],
    num_train_steps: int,
    initial_step: int = 0,
    steps_per_epoch: int = 1000,
    **options,
) -> None:
    """Trains `model` by `model.fit` from `initial_step` to `num_train_steps`.

    Epochs end at multiples of `steps_per_epoch`, wherever the run starts, so that what happens at
    their ends (evaluation) happens at the same steps in an unbroken and in a resumed run.

    Args:
        model: Compiled.
        dataset_from: `dataset_from(step)` is the dataset whose first batch is the one of the step
            after `step`.
        num_train_steps: Steps of the whole run.
        initial_step: Steps that are done.
        steps_per_epoch: Length of an epoch.
        **options: Of `fit`: `callbacks`, `validation_data`, …

    Raises:
        UserError: If the run is done already.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> batch = (model.tokenizer(texts), model.targets(labels))
        >>> batches = tf.data.Dataset.from_tensors(batch).repeat()
        >>> bert_tf.training.fit_steps(model, lambda step: batches.skip(step), num_train_steps=2)
        >>> int(model.optimizer.iterations)
        2
    """
    if initial_step >= num_train_steps:
        raise UserError(
            f"Nothing is left to train: num_train_steps={num_train_steps} was expected to be more "
            f"than the steps already done. Received: {initial_step} steps done"
        )
    step = initial_step
    while step < num_train_steps:
        epoch, done = divmod(step, steps_per_epoch)
        whole_epochs = (num_train_steps - step) // steps_per_epoch
        if done or not whole_epochs:
            epochs, steps = 1, min(steps_per_epoch - done, num_train_steps - step)
        else:
            epochs, steps = whole_epochs, steps_per_epoch
        model.fit(
            dataset_from(step),
            initial_epoch=epoch,
            epochs=epoch + epochs,
            steps_per_epoch=steps,
            **{"verbose": 0, "shuffle": False, **options},
        )
        step += epochs * steps
