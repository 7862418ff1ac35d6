"""Ends the process when another worker is gone, instead of waiting forever."""

import dataclasses
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

import keras

from bert_tf.base.supervision import PEER_GONE
from bert_tf.training.distribution.strategies import worker_addresses

REFUSED_CONNECTIONS = 3  # in a row


@dataclasses.dataclass(eq=False)
class WorkerHealthMonitor(keras.callbacks.Callback):
    """On several machines, ends this process with a message when another worker is gone.

    Inside a TensorFlow collective, a worker may wait forever for a worker that has died, and no
    Python exception can interrupt it. Therefore, a thread connects to the ports of the other
    workers' TensorFlow servers. A worker is gone if its port is closed three times in a row (its
    process has ended), or if it has not answered for `patience` seconds (its machine or the network
    is down). The exit status is then 75, after which tools/launch_workers.py starts all again.

    A worker that hangs still accepts connections and is not noticed here. The launcher notices it
    by the callback `Heartbeat`.

    Args:
        newest_checkpoint: A function that returns the path that the message names, or None.
        interval: The number of seconds between two connections.
        patience: The number of seconds without an answer.

    Example:
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("checkpoints")
        >>> monitor = bert_tf.training.distribution.WorkerHealthMonitor(checkpoint.newest)
    """

    newest_checkpoint: Callable[[], str | None] = lambda: None
    interval: float = 1.0
    patience: float = 30.0

    def __post_init__(self):
        super().__init__()
        self._stop = None

    def on_train_begin(self, logs=None):
        addresses = worker_addresses(self.model.distribute_strategy)
        if addresses and self._stop is None:
            self._stop = threading.Event()
            threading.Thread(target=self._watch, args=(addresses,), daemon=True).start()

    def stop(self) -> None:
        """Stops monitoring: the other workers may end now."""
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
                    host, port = address.rsplit(":", 1)
                    socket.create_connection((host, int(port)), timeout=5.0).close()
                    answered[worker], closed[worker] = time.monotonic(), 0
                except ConnectionRefusedError:
                    closed[worker] += 1
                except OSError:
                    closed[worker] = 0
                silent = time.monotonic() - answered[worker]
                if closed[worker] == REFUSED_CONNECTIONS or silent > self.patience:
                    leave(
                        f"{worker} ({address}) is gone: no answer for {silent:.0f} s",
                        self.newest_checkpoint(),
                    )


def leave(reason: str, checkpoint: str | None) -> None:
    """Ends this process with status 75 and a message, even if other threads are waiting."""
    print(
        f"\nerror: {reason}: this worker ends too. The newest checkpoint is "
        f"{checkpoint or 'none'}; start all workers again to resume from it.",
        file=sys.stderr,
        flush=True,
    )
    # Not sys.exit: TensorFlow would wait for the dead worker while it shuts down.
    os._exit(PEER_GONE)
