"""Sees when another worker dies, and leaves instead of waiting for it for ever."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable

import keras

from bert_tf.training.distribution.strategies import worker_addresses

KNOCKS = 3  # at a closed port


class WorkerHealthMonitor(keras.callbacks.Callback):
    """On several machines, ends this process with a message when another worker is gone.

    A worker that waits in a collective for a dead one waits long or for ever, inside TensorFlow,
    where no Python exception reaches it. A thread therefore knocks at the port on which every
    other worker's TensorFlow server listens. A worker whose port is closed three times in a row
    (a killed process's is, at once) or has not answered for `patience` seconds (a machine or a
    network that is down) is gone, and this process ends with status 1.

    Args:
        newest_checkpoint: Gives the path that the message names, or None.
        interval: Seconds between two knocks.
        patience: Seconds without any answer.

    Example:
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("checkpoints")
        >>> watch = bert_tf.training.distribution.WorkerHealthMonitor(checkpoint.newest)
    """

    def __init__(
        self,
        newest_checkpoint: Callable[[], str | None] = lambda: None,
        interval: float = 1.0,
        patience: float = 30.0,
    ):
        super().__init__()
        self.newest_checkpoint = newest_checkpoint
        self.interval = interval
        self.patience = patience
        self._stop = None

    def on_train_begin(self, logs=None):
        addresses = worker_addresses(self.model.distribute_strategy)
        if addresses and self._stop is None:
            self._stop = threading.Event()
            threading.Thread(target=self._watch, args=(addresses,), daemon=True).start()

    def stop(self) -> None:
        """Ends the watch: from now on the others may leave."""
        if self._stop is not None:
            self._stop.set()
            self._stop = None

    def _watch(self, addresses):
        stop = self._stop
        answered = dict.fromkeys(addresses, time.monotonic())
        closed = dict.fromkeys(addresses, 0)
        while not stop.wait(self.interval):
            for worker, address in addresses.items():
                try:
                    knock(address)
                    answered[worker], closed[worker] = time.monotonic(), 0
                except ConnectionRefusedError:
                    closed[worker] += 1
                except OSError:
                    closed[worker] = 0
                silent = time.monotonic() - answered[worker]
                if closed[worker] == KNOCKS or silent > self.patience:
                    leave(
                        f"{worker} ({address}) is gone: no answer for {silent:.0f} s",
                        self.newest_checkpoint(),
                    )


def knock(address: str) -> None:
    """Opens a connection to "host:port" and closes it. Raises OSError if that fails."""
    host, port = address.rsplit(":", 1)
    socket.create_connection((host, int(port)), timeout=5.0).close()


def leave(reason: str, checkpoint: str | None) -> None:
    """Ends this process with status 1 and a message, whatever its other threads wait for."""
    print(
        f"\nerror: {reason}: this worker leaves too. The newest checkpoint is "
        f"{checkpoint or 'none'}; start all workers again to go on from it.",
        file=sys.stderr,
        flush=True,
    )
    # Not sys.exit: TensorFlow would wait for the dead worker while it shuts down.
    os._exit(1)
