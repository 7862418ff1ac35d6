"""A training run that can be killed and resumed, and its batches, as the flags say."""

import os
from collections.abc import Sequence

import numpy as np

from bert_tf.tools.common import fine_tuning, workers
from bert_tf.tools.common.console import training_verbose
from bert_tf.tools.common.fine_tuning_flags import value_of
from bert_tf.tools.common.flag_table import FLAGS

_STEPS = ("train_batch_size", "learning_rate", "num_train_epochs", "seed", "mixed_precision")
_OPTIMIZER = ("weight_decay", "layer_decay", "l2_regularization", "gradient_accumulation_steps")
_REPLICAS = ("all_reduce_dtype",)
_LOSS = ("label_smoothing", "focal_gamma")
_LAYERS = ("freeze_layers", "reinit_layers", "lora_rank", "lora_alpha", "lora_target_modules")
# The flags that every checkpoint records.
_RECORDED = (*_STEPS, *_OPTIMIZER, *_REPLICAS, *_LOSS, *_LAYERS)


class TrainingBatches:
    """Texts in batches. Every epoch has its own order, which is the same in every run.

    Args:
        model: A task model, or a `DistillationModel`.
        x: What `fit` takes: a list of texts, or a tuple of lists.
        y: The labels, or None.

    Attributes:
        num_rows: The number of rows of an epoch: examples, or windows of them.
        steps_per_epoch, num_steps: The number of steps of an epoch and of the run.
        tokens_per_step: The mean number of tokens of a batch, without padding.
    """

    def __init__(self, model, x, y=None):
        from bert_tf.training.fit_data import epoch_batches

        self._model = model = getattr(model, "student", model)
        preprocessor = model.preprocessor
        self._texts = preprocessor.read(x)
        y = model.read_labels(y, self._texts)
        self._labels = () if y is None else (np.asarray(y),)
        rows, self._lengths = self._texts[0], np.ones(self._texts.num_rows, np.int64)
        self._rows = None
        limits = {"batch_size": FLAGS.train_batch_size}
        if not any(_rates()):  # else the texts change in every epoch
            rows, self._labels = preprocessor.training_rows(self._texts, y, None)
            self._rows = rows
            self._lengths = rows.sizes(padded=False).reshape(len(rows), -1).sum(axis=1)
            if value_of("train_token_budget"):
                limits = {"batch_size": None, "token_budget": FLAGS.train_token_budget}
        limits |= {"seed": FLAGS.seed, "y": y}
        self._batches = epoch_batches(preprocessor, self._texts, rows, **limits)
        self._batches.report_left_out(0)
        self.num_rows = len(self._lengths)
        self.steps_per_epoch = self._batches.steps_per_epoch
        self.tokens_per_step = self._lengths.sum() / self.steps_per_epoch
        self.num_steps = fine_tuning.num_steps_of(self.steps_per_epoch)

    def from_step(self, step):
        """Returns what `fit` takes: the batches of the steps after `step`."""
        from bert_tf.training.distribution.distributed_batches import replica_batches

        strategy = self._model.distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            return self._of_share(step)

        def of_share(share):
            return self._of_share(step, share)

        return replica_batches(strategy, of_share, FLAGS.gradient_accumulation_steps)

    def _of_share(self, step, share=None):
        """Returns the batches after `step`, or the rows of them that this worker computes."""
        numbers = self._batches.from_step(step, self.num_steps)
        if share is not None:
            numbers = share.of(numbers, self._lengths)
        if self._rows is None:
            return self._augmented(numbers.map(lambda rows, epoch: rows), step)
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


class TrainingRun:
    """The training of a compiled model, which begins at its newest checkpoint.

    Args:
        model: A task model, or a `DistillationModel`.
        batches: Its `TrainingBatches`.
        recorded: The flags of the program that a checkpoint records beyond those of all programs.

    Attributes:
        step: The step of the checkpoint; 0 without one.
    """

    def __init__(self, model, batches: TrainingBatches, recorded: Sequence[str] = ()):
        from bert_tf.training import TrainingCheckpoint

        self._model, self._batches = model, batches
        self._checkpoint = TrainingCheckpoint(
            os.path.join(FLAGS.output_dir, "checkpoints"),
            save_every=FLAGS.save_checkpoints_steps,
            keep=value_of("keep_checkpoint_max") or 2,
            keep_scheduled=value_of("average_checkpoints") or 0,
            settings={name: FLAGS[name].value for name in (*recorded, *_RECORDED)},
        )
        self.step = workers.restore(self._checkpoint, model)

    def fit(self, callbacks=(), **options) -> None:
        """Trains the model as the flags say; `options` are those of Keras's `fit`.

        Afterwards only the first of several workers writes to --output_dir.
        """
        from bert_tf.training import fit_steps

        num_steps = self._batches.num_steps
        if self.step >= num_steps:
            print(f"Nothing is left to train: the newest checkpoint is of step {self.step}.")
        else:
            fit_steps(
                self._model,
                self._batches.from_step,
                num_steps,
                self.step,
                steps_per_epoch=self._batches.steps_per_epoch,
                callbacks=[*callbacks, *fine_tuning.epoch_callbacks(), *self._watchers()],
                **{"verbose": training_verbose(), **options},
            )
            if value_of("keep_best"):  # only now is the best epoch known
                self._checkpoint.set_model(self._model)
                self._checkpoint.step = num_steps
                self._checkpoint.save()
        workers.end_training()
        self._average()
        fine_tuning.merge_lora(self._model)

    def _watchers(self):
        from bert_tf.training import callbacks
        from bert_tf.training.distribution import WorkerHealthMonitor

        checkpoint = self._checkpoint
        watchers = [WorkerHealthMonitor(checkpoint.newest), callbacks.Heartbeat()]
        if value_of("keep_best"):
            return watchers
        return [*watchers, checkpoint, callbacks.StopOnSignal(checkpoint, initial_step=self.step)]

    def _average(self):
        """Gives the model the mean of its weights in the last checkpoints, if the flags say so."""
        from bert_tf.training import load_average

        if value_of("average_checkpoints"):
            steps = load_average(self._checkpoint, self._model, FLAGS.average_checkpoints)
            print(f"The weights are the mean of the checkpoints of the steps {steps}.")


def _rates():
    return [value_of(f"augment_{change}") for change in ("insertion", "swap", "deletion")]
