"""How much the server takes on: its memory for requests, and bodies read within it."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator

from bert_tf.serving.server.errors import (
    BODY_TOO_LARGE,
    REQUEST_TIMEOUT,
    RESOURCE_EXHAUSTED,
    RequestError,
)

_MEBIBYTE = 1 << 20


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one request and all of them together may take.

    Attributes:
        max_body: Bytes of a request's body, unpacked if it came compressed.
        max_buffered: Bytes of all requests at a time: their bodies, then what was read out of
            them, then their answers.
        max_answer: Bytes of one answer's values, before they are written as JSON.
        max_text_length: Characters of one string.
        max_tokens: Tokens of one row's texts, estimated from their bytes.
        max_rows: Rows of a request.
        max_waiting: Requests that wait for their answer.
        read_timeout: Seconds for a request's body to arrive.
        write_timeout: Seconds that a client may take nothing of its answer; on Linux.
        idle_timeout: Seconds for its head, and for the next one on the same connection.
        request_timeout: Seconds that a request waits for its answer.
    """

    max_body: int = 8 * _MEBIBYTE
    max_buffered: int = 256 * _MEBIBYTE
    max_answer: int = 64 * _MEBIBYTE
    max_text_length: int = 100_000
    max_tokens: int = 131_072
    max_rows: int = 1024
    max_waiting: int = 1024
    read_timeout: float = 30.0
    write_timeout: float = 30.0
    idle_timeout: float = 75.0
    request_timeout: float = 60.0


class Memory:
    """Counts the bytes that all requests hold at a time.

    Args:
        limit: The most.

    Attributes:
        held: How many they are.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.held = 0

    @contextlib.contextmanager
    def share(self) -> Iterator["MemoryShare"]:
        """What one request holds; given back at the end."""
        share = MemoryShare(self)
        try:
            yield share
        finally:
            share.hold(0)


class MemoryShare:
    """One request's part of the memory; see `Memory.share`."""

    def __init__(self, memory: Memory):
        self._memory = memory
        self._held = 0

    def hold(self, size: int) -> None:
        """Says how many bytes the request holds from now on.

        Raises:
            RequestError: If they and those of the others are too many.
        """
        self._memory.held += size - self._held
        self._held, more = size, size > self._held
        if more and self._memory.held > self._memory.limit:
            raise RequestError(
                RESOURCE_EXHAUSTED,
                "The server's memory is full of other requests. Try again later.",
            )


class BodyReader:
    """Reads bodies.

    Only bytes that came count: slow clients that announce large bodies take nothing from others.
    """

    def __init__(self, limits: Limits):
        self._limits = limits

    async def read(self, request, share: MemoryShare) -> bytes:
        """The body of an aiohttp request.

        Args:
            request: The request.
            share: Where its bytes are counted.

        Raises:
            RequestError: If it is too large, comes too slowly, or memory is full.
        """
        if request.content_length is not None and request.content_length > self._limits.max_body:
            raise self._too_large(request.content_length)
        try:
            return await asyncio.wait_for(self._collect(request, share), self._limits.read_timeout)
        except asyncio.TimeoutError:
            raise RequestError(
                REQUEST_TIMEOUT,
                f"The body did not arrive in {self._limits.read_timeout:g} seconds.",
            ) from None

    async def _collect(self, request, share):
        parts, held = [], 0
        async for part in request.content.iter_any():
            parts.append(part)
            held += len(part)
            if held > self._limits.max_body:
                raise self._too_large(held)
            share.hold(held)
        return b"".join(parts)

    def _too_large(self, size):
        return RequestError(
            BODY_TOO_LARGE,
            f"A body of at most {self._limits.max_body} bytes was expected. Received: {size} or "
            "more",
        )
