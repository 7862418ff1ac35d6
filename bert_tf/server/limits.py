"""The limits of the server: the memory of requests, and reading bodies within it."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import zlib
from collections.abc import Callable, Iterator
from http import HTTPStatus

from bert_tf.server.errors import RequestError, invalid

Hold = Callable[[int], None]  # see `Memory.share`
_MEBIBYTE = 1 << 20
_IDENTITY = "identity"
_ENCODINGS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}  # RFC 9110, section 8.4.1
# One thread, because the event loop must wait for its turn among all threads.
_decompressor = concurrent.futures.ThreadPoolExecutor(1, "decompress")


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of one request and of all requests together. Each limit is a maximum."""

    max_body: int = 8 * _MEBIBYTE  # bytes of a request's body, after decompression
    # Bytes of all current requests: their bodies, then the arrays that were read from them, then
    # their answers.
    max_buffered: int = 256 * _MEBIBYTE
    max_answer: int = 64 * _MEBIBYTE  # bytes of one answer's values, before they become JSON
    max_text_length: int = 100_000  # characters of one string
    # Tokens of one row, estimated from the bytes of its texts: the model's memory grows with them.
    max_tokens: int = 131_072
    max_rows: int = 2048  # of a request, as OpenAI allows
    max_elements: int = 1 << 16  # strings, lists and objects in a request's body
    max_connections: int = 1024  # at most as many as the descriptors of the process allow
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
    def share(self) -> Iterator[Hold]:
        """Yields `hold` for one request, whose bytes are released at the end.

        `hold(size)` sets the number of bytes that the request holds. It raises a `RequestError` if
        all requests together would hold too many bytes.
        """
        held = 0

        def hold(size):
            nonlocal held
            self.held += size - held
            held, more = size, size > held
            if more and self.held > self.limit:
                message = "The server's memory is full of other requests. Try again later."
                status = HTTPStatus.TOO_MANY_REQUESTS
                raise RequestError(status, message, flag="max_buffered_bytes")

        try:
            yield hold
        finally:
            hold(0)


async def read_body(request, hold: Hold, limits: Limits) -> bytes:
    """Reads and decompresses the body of an aiohttp request.

    Raises a `RequestError`, or a `ConnectionError` if the connection is closed.

    aiohttp must not decompress it, because it would stop the event loop meanwhile. Only received
    bytes are held, so slow clients that announce large bodies do not use up the memory of other
    requests.
    """
    if request.content_length is not None:
        _check_size(request.content_length, limits)
    # A timer instead of `asyncio.wait_for`, which makes a task for each request.
    timer = asyncio.get_running_loop().call_later(
        limits.read_timeout, lambda: request.content.set_exception(asyncio.TimeoutError())
    )
    try:
        body = await _collect(request, hold, limits)
    except asyncio.TimeoutError:
        message = f"The body did not arrive within {limits.read_timeout:g} seconds."
        status = HTTPStatus.REQUEST_TIMEOUT
        raise RequestError(status, message, flag="read_timeout_seconds") from None
    except RuntimeError as error:
        if request.protocol.connected:
            raise
        # So says aiohttp if the connection was closed before the first byte was read.
        raise ConnectionResetError(str(error)) from None
    finally:
        timer.cancel()
    encoding = request.headers.get("Content-Encoding", _IDENTITY).lower()
    if encoding == _IDENTITY:
        return body
    loop = asyncio.get_running_loop()
    body = await loop.run_in_executor(_decompressor, _decompressed, body, encoding, limits)
    hold(len(body))
    return body


async def _collect(request, hold, limits):
    parts, size = [], 0
    async for part in request.content.iter_any():
        parts.append(part)
        size += len(part)
        _check_size(size, limits)
        hold(size)
    return b"".join(parts)


def _decompressed(body, encoding, limits):
    if encoding not in _ENCODINGS:
        message = (
            f"`Content-Encoding` must be gzip, deflate or identity. Received: {encoding[:100]}"
        )
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    reader = zlib.decompressobj(_ENCODINGS[encoding])
    try:
        text = reader.decompress(body, limits.max_body + 1)
    except zlib.error as error:
        raise invalid(f"The body must be {encoding} data. Received: {error}") from None
    _check_size(len(text), limits)
    if not reader.eof:
        raise invalid(f"The body must be complete {encoding} data. Received: only its beginning")
    return text


def _check_size(size, limits):
    if size > limits.max_body:
        raise RequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body must have at most {limits.max_body} bytes. Received: {size} or more bytes.",
            flag="max_body_bytes",
        )
