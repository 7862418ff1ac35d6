"""A polite end: SIGTERM saves and leaves."""

import signal
import sys
import threading

import keras
import tensorflow as tf

from bert_tf.training.callbacks.step_callback import StepCallback
from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint
from bert_tf.training.distribution.strategies import worker_addresses

# How often several workers ask each other whether one of them was told to stop: all must leave at
# the same step, and the question is a collective.
STEPS_BETWEEN_QUESTIONS = 10


class StopOnSignal(StepCallback):
    """At a signal, finishes the step, saves a checkpoint and ends the process with a message.

    The exit status is 128 + the number of the signal, as of a process that the signal ended. A
    second signal ends the process at once. On several workers a signal to one of them stops all.

    Args:
        checkpoint: What saves.
        signals: What to listen to.
        initial_step: The step that the run goes on from.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("checkpoints")
        >>> stop = bert_tf.training.callbacks.StopOnSignal(checkpoint)
        >>> model.fit(texts, labels, callbacks=[checkpoint, stop])
    """

    def __init__(
        self,
        checkpoint: TrainingCheckpoint,
        signals: tuple[int, ...] = (signal.SIGTERM,),
        initial_step: int = 0,
    ):
        super().__init__(initial_step)
        self.checkpoint = checkpoint
        self.signals = signals
        self._received = 0
        self._previous = {}

    def on_train_begin(self, logs=None):
        if threading.current_thread() is not threading.main_thread():
            return  # Python hands signals to the main thread only.
        for number in self.signals:
            self._previous.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._receive)

    def on_step_end(self, logs):
        received = self._received
        if worker_addresses(self.model.distribute_strategy):
            if self.step % STEPS_BETWEEN_QUESTIONS:
                return
            received = largest_of_workers(self.model.distribute_strategy, received)
        if not received:
            return
        path = self.checkpoint.save()
        self._restore_handlers()
        print(
            f"\n{signal.Signals(received).name}: saved {path} after step {self.step}. "
            "Start again to go on from there.",
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


def largest_of_workers(strategy: tf.distribute.Strategy, number: int) -> int:
    """The largest `number` that any worker calls this with; all must call it."""

    @tf.function
    def gathered(value):
        return strategy.gather(value, axis=0)

    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([number], tf.int32)
    )
    return int(keras.ops.max(gathered(values)))
