"""How much the server takes on, and request bodies read within it."""

import asyncio
import dataclasses

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
        max_buffered: Bytes of all bodies on their way at a time.
        max_text_length: Characters of one string.
        max_rows: Rows of a request.
        max_waiting: Requests that wait for their answer.
        read_timeout: Seconds for a request's body to arrive.
        write_timeout: Seconds that a client may take nothing of its answer; on Linux.
        idle_timeout: Seconds for its head, and for the next one on the same connection.
        request_timeout: Seconds that a request waits for its answer.
    """

    max_body: int = 8 * _MEBIBYTE
    max_buffered: int = 256 * _MEBIBYTE
    max_text_length: int = 100_000
    max_rows: int = 1024
    max_waiting: int = 1024
    read_timeout: float = 30.0
    write_timeout: float = 30.0
    idle_timeout: float = 75.0
    request_timeout: float = 60.0


class BodyReader:
    """Reads bodies and counts the bytes of those that are on their way.

    Only bytes that came count: slow clients that announce large bodies take nothing from others.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self.buffered = 0

    async def read(self, request) -> bytes:
        """The body of an aiohttp request.

        Raises:
            RequestError: If it is too large, comes too slowly, or memory is full of bodies.
        """
        if request.content_length is not None and request.content_length > self._limits.max_body:
            raise self._too_large(request.content_length)
        try:
            return await asyncio.wait_for(self._collect(request), self._limits.read_timeout)
        except asyncio.TimeoutError:
            raise RequestError(
                REQUEST_TIMEOUT,
                f"The body did not arrive in {self._limits.read_timeout:g} seconds.",
            ) from None

    async def _collect(self, request):
        parts, held = [], 0
        try:
            async for part in request.content.iter_any():
                parts.append(part)
                held += len(part)
                self.buffered += len(part)
                if held > self._limits.max_body:
                    raise self._too_large(held)
                if self.buffered > self._limits.max_buffered:
                    raise RequestError(
                        RESOURCE_EXHAUSTED, "The server is busy with other requests' bodies."
                    )
            return b"".join(parts)
        finally:
            self.buffered -= held

    def _too_large(self, size):
        return RequestError(
            BODY_TOO_LARGE,
            f"A body of at most {self._limits.max_body} bytes was expected. Received: {size} or "
            "more",
        )
