"""Ctrl-C, which a terminal sends to a program and to all processes that it has started."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C, so that the one that started them ends them."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
