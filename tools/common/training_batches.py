"""The batches of a training run that can be killed and resumed, as the flags say."""

import numpy as np

from bert_tf.tools.common.console import training_verbose
from bert_tf.tools.common.fine_tuning import num_steps_of
from bert_tf.tools.common.fine_tuning_flags import value_of
from bert_tf.tools.common.flag_table import FLAGS


class TrainingBatches:
    """Texts in batches. Every epoch has its own order, which is the same in every run.

    Args:
        model: A task model, or a `DistillationModel`.
        x: A list of texts, or two lists for pairs.
        y: The targets, or None.

    Attributes:
        steps_per_epoch, num_steps: The number of steps of an epoch and of the run.
        tokens_per_step: The mean number of tokens of a batch, without padding.
    """

    def __init__(self, model, x, y=None):
        from bert_tf.inputs.batches import EpochBatches

        model = getattr(model, "student", model)
        self._model = model
        self._texts = model.preprocessor.read_columns(x)
        self._labels = () if y is None else (np.asarray(y),)
        self._rows = None
        padded = not model.backbone.packs_tokens()
        lengths = np.ones(self._texts.num_rows, np.int64)
        if not any(_rates()):  # else the texts change in every epoch
            preprocessor = model.preprocessor
            self._rows, self._labels = preprocessor.training_rows(self._texts, y, None)
            lengths = self._rows.sizes(padded)
        limit = {"batch_size": FLAGS.train_batch_size}
        if value_of("train_token_budget"):
            limit = {"token_budget": FLAGS.train_token_budget}
        self._batches = EpochBatches(lengths, **limit, padded=padded, seed=FLAGS.seed)
        self.steps_per_epoch = self._batches.steps_per_epoch
        self.tokens_per_step = lengths.sum() / self.steps_per_epoch
        self.num_steps = num_steps_of(self.steps_per_epoch)

    def from_step(self, step):
        """Returns the dataset that starts with the batch of the step after `step`."""
        numbers = self._batches.from_step(step, self.num_steps).map(lambda rows, epoch: rows)
        if self._rows is None:
            return self._augmented(numbers, step)
        numbers = numbers.map(lambda rows: (rows, 0))  # with an epoch
        preprocessor = self._model.preprocessor
        return preprocessor.batches(self._rows, True, self._labels, numbers, FLAGS.seed)

    def _augmented(self, numbers, step):
        import tensorflow as tf

        from bert_tf.inputs.augmentation import TextAugmentation, augment
        from bert_tf.inputs.token_rows import parallel_map

        with tf.device("CPU:0"):
            texts, labels = (tuple(map(tf.constant, v)) for v in (self._texts, self._labels))

        def of_rows(rows):
            return tuple(tf.gather(text, rows) for text in texts), *(
                tf.gather(label, rows) for label in labels
            )

        augmentation = TextAugmentation(*_rates(), unit=FLAGS.augment_unit, seed=FLAGS.seed + step)
        batches = augment(numbers.map(of_rows), augmentation)
        batches = parallel_map(batches, lambda texts, *y: (self._model.tokens_of(texts), *y))
        return batches.prefetch(tf.data.AUTOTUNE)


def fit(model, batches, initial_step=0, callbacks=(), **options):
    """Trains a compiled model with `TrainingBatches` from a given step on."""
    from bert_tf.training import fit_steps

    fit_steps(
        model,
        batches.from_step,
        batches.num_steps,
        initial_step,
        steps_per_epoch=batches.steps_per_epoch,
        callbacks=list(callbacks),
        **{"verbose": training_verbose(), **options},
    )


def _rates():
    return [value_of(f"augment_{change}") for change in ("insertion", "swap", "deletion")]
