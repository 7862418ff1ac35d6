"""Limits the connections of a server, so that descriptors are left for probes and files.

A new connection above the limit replaces an idle one, which HTTP allows a server to close at any
time. If all are busy, a few more connections are accepted, on which only probes are answered.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from http import HTTPStatus

from bert_tf.server.errors import RequestError, is_of_the_system
from bert_tf.server.logs import log

ACCEPTED_AT_ONCE = 4  # connections in one step of the event loop, before idle ones are closed
_FOR_PROBES = 8  # connections above the limit
_FOR_FILES = 16  # of a model that is loaded, and of a process that exports it
_SILENT_SECONDS = 10.0  # between two lines of the log about the same limit


def allowed_connections(most: int, protocols: int = 1) -> int:
    """Returns `most`, or how many connections each protocol may have within the descriptors."""
    allowed = max(1, min(most, (_free_descriptors() - _FOR_FILES) // protocols - _FOR_PROBES))
    if allowed < most:
        log.warning(
            "At most %s connections, because this process may open no more files; "
            "`ulimit -n` allows more",
            allowed,
        )
    return allowed


class Connections:
    """Makes the handlers of connections, as a protocol factory of asyncio.

    Args:
        server: The `aiohttp.web.Server`, which makes the handlers.
        most: The maximum number of connections with a request that is no probe.
    """

    def __init__(self, server, most: int):
        self._server, self.most = server, most
        self._busy = set()  # the handlers whose request is being answered
        self._coming = 0  # the handlers whose connection is made in this step of the event loop

    def __call__(self) -> asyncio.Protocol:
        """Returns the handler of a new connection."""
        # The oldest first, without those that are being closed.
        handlers = [one for one in self._server.connections if one.transport is not None]
        count = len(handlers) + self._coming
        if count >= self.most:
            idle = next((one for one in handlers if one not in self._busy), None)
            if idle is not None:
                idle.force_close()
            elif count >= self.most + _FOR_PROBES:
                return _Closed()
        self._coming += 1
        asyncio.get_running_loop().call_soon(self._is_made)  # asyncio makes the connection next
        return self._server()

    def _is_made(self):
        self._coming -= 1

    @contextlib.contextmanager
    def busy(self, handler: asyncio.Protocol) -> Iterator[bool]:
        """Keeps a connection while it has a request; yields whether only a probe is answered."""
        self._busy.add(handler)
        try:
            yield len(self._busy) > self.most
        finally:
            self._busy.discard(handler)

    def refusal(self) -> RequestError:
        """Returns the error of a request that is no probe."""
        return RequestError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{self.most} other connections have requests. Try again later.",
            flag="max_connections",
        )


class _Closed(asyncio.Protocol):
    def connection_made(self, transport):
        transport.abort()


def _free_descriptors():
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return 1 << 20
    return most - len(os.listdir("/dev/fd"))


class LoopErrors:
    """An exception handler of an event loop: limits of the system are logged as one line."""

    def __init__(self):
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict) -> None:
        error = context.get("exception")
        if not is_of_the_system(error):
            loop.default_exception_handler(context)
        elif time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            log.warning("A connection must wait: %s", error.strerror)
