"""What a worker program and tools/launch_workers.py agree on. It does not import TensorFlow."""

import contextlib
import os
import threading
import time

# The launcher sets it to the path of a file that exists. A worker is watched once it has beaten.
HEARTBEAT_VARIABLE = "BERT_TF_HEARTBEAT"

# The exit status of a worker that ends because another worker is gone: starting all again helps.
PEER_GONE = 75  # EX_TEMPFAIL of <sysexits.h>


def beat() -> None:
    """Tells tools/launch_workers.py that this process is not hanging; without it, does nothing.

    Example:
        >>> bert_tf.base.supervision.beat()
    """
    path = os.environ.get(HEARTBEAT_VARIABLE)
    if path:
        with contextlib.suppress(OSError):  # the launcher has ended
            os.utime(path)


def keep_beating(interval: float = 10.0) -> None:
    """Beats every `interval` seconds from now on, in work without steps, whose end is not known.

    A hang is not noticed any more.

    Example:
        >>> bert_tf.base.supervision.keep_beating()
    """

    def beat_again():
        while True:
            beat()
            time.sleep(interval)

    if os.environ.get(HEARTBEAT_VARIABLE):
        threading.Thread(target=beat_again, daemon=True).start()
