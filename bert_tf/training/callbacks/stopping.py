"""Callbacks that end a run, and one that shows the launcher of the workers that it goes on."""

import dataclasses
import math
import os
import signal
import sys
import threading
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.files import atomic_path
from bert_tf.base.supervision import beat
from bert_tf.errors import UserError
from bert_tf.training.callbacks.training_log import StepCallback
from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint
from bert_tf.training.distribution.strategies import (
    end_together,
    largest_of_workers,
    worker_addresses,
)


class Heartbeat(keras.callbacks.Callback):
    """Beats after each batch of training, evaluation and prediction.

    tools/launch_workers.py starts all workers again if one has not beaten for --hang_timeout
    seconds. Without it, the callback does nothing.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> model.fit(texts, labels, callbacks=[bert_tf.training.callbacks.Heartbeat()])
    """

    def on_train_batch_end(self, batch, logs=None):
        beat()

    def on_test_batch_end(self, batch, logs=None):
        beat()

    def on_predict_batch_end(self, batch, logs=None):
        beat()


# All workers must stop at the same step. They exchange the received signals in a collective, which
# takes time, so they do so only every few steps.
STEPS_BETWEEN_EXCHANGES = 10


@dataclasses.dataclass(eq=False)
class StopOnSignal(StepCallback):
    """On a signal, finishes the step, saves a checkpoint and ends the process with a message.

    The exit status is 128 + the number of the signal, as if the signal had ended the process. A
    second signal ends the process at once. With several workers, a signal to one of them stops all.

    Args:
        checkpoint: The callback that saves the checkpoint.
        signals: The signals.
        initial_step: The step from which the run is resumed.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("checkpoints")
        >>> stop = bert_tf.training.callbacks.StopOnSignal(checkpoint)
        >>> model.fit(texts, labels, callbacks=[checkpoint, stop])
    """

    checkpoint: TrainingCheckpoint
    signals: tuple[int, ...] = (signal.SIGTERM,)
    initial_step: int = 0

    def __post_init__(self):
        super().__post_init__()
        self._received = 0
        self._previous = {}

    def on_train_begin(self, logs=None):
        if threading.current_thread() is not threading.main_thread():
            return  # Python handles signals in the main thread only.
        for number in self.signals:
            self._previous.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._receive)

    def on_step_end(self, logs):
        received = self._received
        if worker_addresses(self.model.distribute_strategy):
            if self.step % STEPS_BETWEEN_EXCHANGES:
                return
            received = largest_of_workers(self.model.distribute_strategy, received)
        if not received:
            return
        path = self.checkpoint.save()
        end_together(self.model.distribute_strategy)
        self._restore_handlers()
        print(
            f"\n{signal.Signals(received).name}: saved {path} after step {self.step}. "
            "Start again to resume from it.",
            file=sys.stderr,
            flush=True,
        )
        raise SystemExit(128 + received)

    def on_train_end(self, logs=None):
        self._restore_handlers()

    def _receive(self, number, frame):
        self._received = number
        self._restore_handlers()

    def _restore_handlers(self):
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}


@dataclasses.dataclass(eq=False)
class TerminateOnBadLoss(StepCallback):
    """Stops training with a `UserError` at the first NaN or infinite loss, and writes the batch.

    Put it before `TrainingCheckpoint` in the list of callbacks.

    Args:
        checkpoint: The callback whose newest checkpoint the message names.
        batch_at: A function: `batch_at(step)` is the batch of the step after `step`, a nested
            structure of tensors. It is written as `bad-batch-<step>.npz`, with names joined by "/".
        directory: The directory of that file.
        initial_step: The step from which the run is resumed.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> batch = (model.tokenize(texts), model.targets(labels))
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("run_checkpoints")
        >>> stop = TerminateOnBadLoss(checkpoint, lambda step: batch, "bad_batches")
        >>> model.fit(tf.data.Dataset.from_tensors(batch), callbacks=[stop, checkpoint])
    """

    checkpoint: TrainingCheckpoint
    batch_at: Callable[[int], object]
    directory: str | os.PathLike
    initial_step: int = 0

    def on_step_end(self, logs):
        # The mean over the epoch is NaN or infinite as soon as one loss is.
        loss = float(logs["loss"])
        if math.isfinite(loss):
            return
        resolver = self.model.distribute_strategy.cluster_resolver
        worker = f"-worker{resolver.task_id}" if resolver and resolver.task_type else ""
        path = os.path.join(self.directory, f"bad-batch-{self.step}{worker}.npz")
        arrays = {}
        for names, values in keras.tree.flatten_with_path(self.batch_at(self.step - 1)):
            dense = values.to_tensor() if isinstance(values, tf.RaggedTensor) else values
            arrays["/".join(map(str, names))] = np.asarray(dense)
        with atomic_path(path) as new, open(new, "wb") as file:
            np.savez(file, **arrays)
        raise UserError(
            f"`loss` must be finite. Received: loss={loss} at step {self.step}. Its batch is in "
            f"{path}; the last good checkpoint is {self.checkpoint.newest() or 'none'}. Check the "
            "batch, or resume from the checkpoint with a lower learning rate."
        )
