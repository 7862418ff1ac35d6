"""Graceful shutdown: on SIGTERM, saves a checkpoint and ends the process."""

import dataclasses
import signal
import sys
import threading

from bert_tf.training.callbacks.step_callback import StepCallback
from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint
from bert_tf.training.distribution.strategies import worker_addresses
from bert_tf.training.distribution.worker_exchange import end_together, largest_of_workers

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
