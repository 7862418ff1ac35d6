"""The gRPC server: who may send requests, how many, and what is counted.

A message is read only when there is room for one of the largest size, so that clients that announce
large ones do not use up the memory: until then gRPC keeps the first bytes of each. A client that
sends slowly gives its room to one that waits. Compressed messages are refused, because gRPC would
decompress them before it looks at their size.

Reference: grpc/include/grpc/impl/channel_arg_names.h; grpc/doc/health-checking.md.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import user_error
from bert_tf.server.access import Access
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.grpc_api import MODEL, PREDICTION, PURPOSE, GrpcApi, parse_message
from bert_tf.server.guard import unexpected_error
from bert_tf.server.limits import Limits, Memory
from bert_tf.server.logs import REQUEST_ID, begin_request
from bert_tf.server.metrics import Metrics
from bert_tf.server.users import Users

_CODES = {
    HTTPStatus.BAD_REQUEST: "INVALID_ARGUMENT",
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.REQUEST_TIMEOUT: "DEADLINE_EXCEEDED",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "INVALID_ARGUMENT",  # it does not help to try again
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.NOT_IMPLEMENTED: "UNIMPLEMENTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
    HTTPStatus.GATEWAY_TIMEOUT: "DEADLINE_EXCEEDED",
}
_HEALTH = "grpc.health.v1.Health"
_SERVICES = ("", PREDICTION, MODEL)  # of which health is known; the first is the whole server
_MOST_PROBES = 64  # health checks at a time
_MOST_WATCHERS = 32  # of them, those that wait until the server stops
_READ_PROBES = 16  # of which messages are read at a time
_SLOW_SECONDS = 2.0  # after which a message that is read gives its place to one that waits
_MOST_MESSAGE = 1000  # bytes of the message of an error, which is sent in a header
_UNCOMPRESSED = 1  # the bit of GRPC_COMPRESS_NONE
_ANSWER_SECONDS = 1.0  # at shutdown, for answers that are being sent


class _Request(NamedTuple):
    """Has what is read of aiohttp's requests."""

    headers: Mapping[str, str]


class GrpcServer:
    """Serves the methods of a `GrpcApi` and health checks.

    Args:
        api: What answers requests.
        access: Who may send them; only its API keys are used.
        limits: The limits of requests.
        memory: The memory of all requests, also of REST.
        users: Counts the requests that are being answered.
        metrics: The metrics.
        stop: Is set when the server begins to stop.

    Attributes:
        answered: The number of answers, without those of health checks.
        port: The port, after `bind`.
    """

    def __init__(
        self,
        api: GrpcApi,
        access: Access,
        limits: Limits,
        memory: Memory,
        users: Users,
        metrics: Metrics,
        stop: asyncio.Event,
    ):
        self._health = require_package("grpc_health.v1.health_pb2", PURPOSE)
        self._grpc = require_package("grpc", PURPOSE)
        self._api, self._access, self._limits = api, access, limits
        self._memory, self._users, self._metrics, self._stop = memory, users, metrics, stop
        self._reading = _Places(max(1, limits.max_buffered // limits.max_body))
        self._reading_probes = _Places(_READ_PROBES)
        self._running = self._watchers = self.answered = self.port = 0
        # Bytes in a client's metadata are no text: gRPC would log a traceback.
        hidden = "Invalid encoding"
        log = logging.getLogger("grpc._cython.cygrpc")
        log.addFilter(lambda record: not str(record.msg).startswith(hidden))

    def bind(self, host: str, port: int, max_connections: int) -> None:
        """Binds the port; 0 chooses a free one.

        Raises:
            UserError: If it is no free address of this machine.
        """
        idle = round(1000 * self._limits.idle_timeout)
        options = {
            "grpc.so_reuseport": 0,  # otherwise another server could have the same port
            "grpc.max_receive_message_length": self._limits.max_body,
            "grpc.compression_enabled_algorithms_bitset": _UNCOMPRESSED,
            "grpc.max_concurrent_streams": self._limits.max_connections,
            "grpc.max_allowed_incoming_connections": max_connections,
            "grpc.max_connection_idle_ms": idle,
            "grpc.server_handshake_timeout_ms": idle,
            "grpc.http2.bdp_probe": 0,  # so that no more of a message is kept until it is read
        }
        most = self._limits.max_connections + _MOST_PROBES
        self._server = self._grpc.aio.server(
            options=list(options.items()), maximum_concurrent_rpcs=most
        )
        functions = {path: self._answerer(*method) for path, method in self._api.methods.items()}
        functions |= {f"/{_HEALTH}/Check": self._check, f"/{_HEALTH}/Watch": self._watch}
        for path, function in functions.items():
            _, service, method = path.split("/")
            handlers = {method: self._grpc.stream_stream_rpc_method_handler(function)}
            handler = self._grpc.method_handlers_generic_handler(service, handlers)
            self._server.add_generic_rpc_handlers([handler])
        address = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_insecure_port(f"{address}:{port}")
        except RuntimeError as error:
            expected = "be a free address of this machine"
            received = f"host={host!r}, grpc_port={port} ({error})"
            raise user_error("`host` and `grpc_port`", expected, received) from None

    async def start(self) -> None:
        """Begins to answer requests."""
        await self._server.start()

    def refuse_further(self, seconds: float) -> None:
        """Refuses further requests; the current ones have some seconds."""
        self._stopping = asyncio.ensure_future(self._server.stop(seconds))

    async def close(self) -> None:
        """Ends the health checks that wait, after the current requests have been answered."""
        await self._server.stop(_ANSWER_SECONDS)
        await self._stopping

    def _answerer(self, name, method):
        """Returns what answers the requests of a method of the API."""

        async def answer(_, context):
            started, code = time.monotonic(), self._grpc.StatusCode.CANCELLED
            try:
                with self._users, self._metrics.requests_in_progress.track_inprogress():
                    await self._computed(method, context)
                code = self._grpc.StatusCode.OK
            except Exception as error:
                refusal = unexpected_error(error, f"gRPC {name}")
                code = self._code(refusal)
                await self._abort(context, refusal)
            finally:
                self._metrics.requests.labels("grpc", name, code.name).inc()
                seconds = time.monotonic() - started
                self._metrics.request_seconds.labels("grpc", name).observe(seconds)
                self.answered += 1

        return answer

    async def _computed(self, method, context):
        metadata = dict(context.invocation_metadata() or ())
        names = (name for name in ("Authorization", REQUEST_ID) if name.lower() in metadata)
        request = _Request({name: metadata[name.lower()] for name in names})
        context.set_trailing_metadata(((REQUEST_ID.lower(), begin_request(request)),))
        self._access.check_key(request)
        if self._running >= self._limits.max_connections:
            message = f"{self._running} other requests are being answered. Try again later."
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, message, flag="max_connections")
        self._running += 1
        try:
            with self._memory.share() as hold:
                answer = await method(await self._read(context, self._reading, hold), hold)
                # The memory is held until it is sent, and no longer than a request may take.
                late = HTTPStatus.GATEWAY_TIMEOUT, "The answer was not received"
                seconds = self._limits.request_timeout
                with _deadline(seconds, *late, flag="request_timeout_seconds"):
                    await context.write(answer)
        finally:
            self._running -= 1

    async def _read(self, context, places, hold):
        """Reads the message of a request as soon as there is room for it."""
        late = HTTPStatus.REQUEST_TIMEOUT, "The message did not arrive"
        with _deadline(self._limits.read_timeout, *late, flag="read_timeout_seconds") as end:
            async with places.taken(end):
                body = await context.read()
                if body is self._grpc.aio.EOF:
                    raise invalid("The request must have a message. Received: none")
                hold(len(body))
                return body

    async def _check(self, _, context):
        try:
            status = await self._status(context)
        except RequestError as error:
            await self._abort(context, error)
        if status == self._health.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(self._grpc.StatusCode.NOT_FOUND, "unknown service")
        await self._write_status(context, status)

    async def _watch(self, _, context):
        """Answers with the status, and with the next one when the server begins to stop."""
        if self._watchers >= _MOST_WATCHERS:
            message = f"{_MOST_WATCHERS} others are watching"
            await context.abort(self._grpc.StatusCode.RESOURCE_EXHAUSTED, message)
        self._watchers += 1
        try:
            stops = self._health.HealthCheckResponse.NOT_SERVING
            status = await self._status(context)
            await self._write_status(context, status)
            if status != stops:  # the server may have begun to stop while this was written
                await self._stop.wait()
                await self._write_status(context, stops)
        except RequestError as error:
            await self._abort(context, error)
        finally:
            self._watchers -= 1

    async def _status(self, context):
        """Reads a request of a health check and returns the status of its service."""
        body = await self._read(context, self._reading_probes, lambda size: None)
        request = parse_message(self._health.HealthCheckRequest, body, self._limits.max_elements)
        if request.service not in _SERVICES:
            return self._health.HealthCheckResponse.SERVICE_UNKNOWN
        stops, kind = self._stop.is_set(), self._health.HealthCheckResponse
        return kind.NOT_SERVING if stops else kind.SERVING

    async def _write_status(self, context, status):
        await context.write(self._health.HealthCheckResponse(status=status).SerializeToString())

    def _code(self, error):
        return self._grpc.StatusCode[_CODES.get(error.status, "INTERNAL")]

    async def _abort(self, context, error):
        message = error.message
        if error.flag:
            self._metrics.refused.labels(error.flag).inc()
            message += f" See --{error.flag}."
        # A message may repeat a lone surrogate of the request, which has no UTF-8.
        shown = message.encode("utf-8", "replace")[:_MOST_MESSAGE].decode("utf-8", "ignore")
        await context.abort(self._code(error), shown)


class _Places:
    """The places of the messages that are read at a time."""

    def __init__(self, count):
        self._free = asyncio.Semaphore(count)
        self._waiting = 0
        # The functions that end messages: those that are slow, oldest first, and those that end.
        self._slow, self._ending = [], set()

    @contextlib.asynccontextmanager
    async def taken(self, end):
        """Waits for a place, if necessary that of a slow message, and keeps it for the block.

        `end` raises an error in the block, if the message becomes slow and another waits.
        """
        self._waiting += 1
        try:
            self._make_room()
            await self._free.acquire()
        finally:
            self._waiting -= 1
        timer = asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._is_slow, end)
        try:
            yield
        finally:
            timer.cancel()
            if end in self._slow:
                self._slow.remove(end)
            self._ending.discard(end)
            self._free.release()

    def _is_slow(self, end):
        self._slow.append(end)
        self._make_room()

    def _make_room(self):
        while self._free.locked() and self._slow and self._waiting > len(self._ending):
            message = f"The message did not arrive within {_SLOW_SECONDS:g} seconds, and others "
            self._ending.add(end := self._slow.pop(0))
            end(RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"{message}wait. Try again later."))


@contextlib.contextmanager
def _deadline(seconds, status, message, flag):
    """Raises a `RequestError` if the block takes longer; `asyncio.wait_for` would make a task.

    Yields a function that raises another one in the block.
    """
    task, reason = asyncio.current_task(), None

    def end(error):
        nonlocal reason
        reason = reason or error
        task.cancel()

    late = RequestError(status, f"{message} within {seconds:g} seconds.", flag=flag)
    timer = asyncio.get_running_loop().call_later(seconds, end, late)
    try:
        yield end
    except asyncio.CancelledError:
        if reason is not None:
            raise reason from None
        raise
    finally:
        timer.cancel()
