"""The limits of the server: the memory of requests, and reading bodies within it."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator
from http import HTTPStatus

from bert_tf.serving.server.errors import RequestError

_MEBIBYTE = 1 << 20


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of one request and of all requests together. Each limit is a maximum."""

    max_body: int = 8 * _MEBIBYTE  # bytes of a request's body, after decompression
    # Bytes of all current requests: their bodies, then the arrays that were read from them, then
    # their answers.
    max_buffered: int = 256 * _MEBIBYTE
    max_answer: int = 64 * _MEBIBYTE  # bytes of one answer's values, before they become JSON
    max_text_length: int = 100_000  # characters of one string
    # Of the texts of one row, estimated from their bytes: the memory of the model grows with them.
    max_tokens: int = 131_072
    max_rows: int = 1024  # of a request
    max_waiting: int = 1024  # requests that wait for their answer
    read_timeout: float = 30.0  # seconds in which a request's body must arrive
    # Seconds in which a client must receive some of its answer; only on Linux.
    write_timeout: float = 30.0
    idle_timeout: float = 75.0  # seconds until a request's head, also the next of a connection
    request_timeout: float = 60.0  # seconds that a request waits for its answer


class Memory:
    """Counts the bytes that all current requests hold, at most `limit`."""

    def __init__(self, limit: int):
        self.limit = limit
        self.held = 0

    @contextlib.contextmanager
    def share(self) -> Iterator["MemoryShare"]:
        """Yields the share of one request, which is released at the end."""
        share = MemoryShare(self)
        try:
            yield share
        finally:
            share.hold(0)


class MemoryShare:
    """The bytes that one request holds; see `Memory.share`."""

    def __init__(self, memory: Memory):
        self._memory = memory
        self._held = 0

    def hold(self, size: int) -> None:
        """Sets the number of bytes that the request holds.

        Raises:
            RequestError: If all requests together would hold too many bytes.
        """
        self._memory.held += size - self._held
        self._held, more = size, size > self._held
        if more and self._memory.held > self._memory.limit:
            message = "The server's memory is full of other requests. Try again later."
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, message)


async def read_body(request, share: MemoryShare, limits: Limits) -> bytes:
    """Reads the body of an aiohttp request.

    Only received bytes are counted in `share`, so slow clients that announce large bodies do not
    use up the memory of other requests.

    Raises:
        RequestError: If the body is too large or arrives too slowly, or the memory is full.
    """
    if request.content_length is not None:
        _check_size(request.content_length, limits)
    try:
        return await asyncio.wait_for(_collect(request, share, limits), limits.read_timeout)
    except asyncio.TimeoutError:
        message = f"The body did not arrive within {limits.read_timeout:g} seconds."
        raise RequestError(HTTPStatus.REQUEST_TIMEOUT, message) from None


async def _collect(request, share, limits):
    parts, held = [], 0
    async for part in request.content.iter_any():
        parts.append(part)
        held += len(part)
        _check_size(held, limits)
        share.hold(held)
    return b"".join(parts)


def _check_size(size, limits):
    if size > limits.max_body:
        raise RequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body must have at most {limits.max_body} bytes. Received: {size} or more bytes",
        )
