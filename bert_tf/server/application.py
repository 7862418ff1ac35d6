"""The aiohttp application: the REST interface, the web page, health checks, metrics; and gRPC.

Graceful shutdown: on SIGTERM or SIGINT, the server reports that it is not ready and closes every
connection after its next answer. It still accepts connections for `drain_seconds`, so that no
request is lost. Then it closes the port, answers the remaining requests and exits. A second signal
terminates it immediately. A signal while the model is loaded ends the process at once.
"""

import asyncio
import contextlib
import dataclasses
import gc
import importlib.resources
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping

from bert_tf.base.optional_packages import require_package
from bert_tf.inputs import TOKEN_BUDGET
from bert_tf.server import rest_api, retrieval_forms
from bert_tf.server.access import HEALTH, PROBES, READY, Access
from bert_tf.server.batcher import Batcher
from bert_tf.server.connections import (
    ACCEPTED_AT_ONCE,
    Connections,
    LoopErrors,
    allowed_connections,
)
from bert_tf.server.content_policy import page_policy
from bert_tf.server.grpc_api import GrpcApi
from bert_tf.server.grpc_server import GrpcServer
from bert_tf.server.guard import guarded
from bert_tf.server.limits import Limits, Memory
from bert_tf.server.listener import listen, make_runner, print_address
from bert_tf.server.logs import log
from bert_tf.server.metrics import METRICS_PATH, Metrics
from bert_tf.server.model_directory import kill_exports
from bert_tf.server.model_requests import ModelRequests
from bert_tf.server.model_versions import ModelVersions
from bert_tf.server.rest_api import RestApi
from bert_tf.server.users import Users

_BACKLOG = 1024  # connections that the operating system queues until they are accepted
_METRICS = (METRICS_PATH, "/metrics")
# A thread lets another run after this time, a tenth of Python's: the event loop waits for it
# several times per request.
_SWITCH_SECONDS = 0.0005
_SETTLE_SECONDS = 0.1  # for connections that are accepted but not yet served
_WRITE_SECONDS = 10.0  # at shutdown, for answers that are being sent


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """The options of the server."""

    model_dir: str | os.PathLike  # of the numbered versions, or of one model
    model_name: str  # in REST paths
    pairs: bool = False  # whether classifiers that `save_pretrained` wrote take two texts
    trusted: bool = False  # whether SavedModels may do more than compute
    precision: str = "float32"  # as in `optimize_for_inference`, of models that are exported
    host: str = "127.0.0.1"
    port: int = 8501  # 0 chooses a free port
    grpc_port: int | None = None  # the same for gRPC; None: without it
    version_labels: Mapping[str, int] = dataclasses.field(default_factory=dict)
    token_budget: int = TOKEN_BUDGET  # maximum tokens of a batch
    batch_wait: float = 0.0  # seconds that a single request waits for others
    poll_seconds: float = 1.0  # between two searches for new versions
    drain_seconds: float = 1.0  # from the stop signal until the port is closed
    stop_seconds: float = 60.0  # in which the remaining requests must then be answered
    allowed_hosts: tuple[str, ...] = ()  # of `Access`
    allowed_origins: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    limits: Limits = dataclasses.field(default_factory=Limits)


def serve(options: ServerOptions) -> None:
    """Prints the address when the model is loaded, and serves it until a signal ends the process.

    Raises:
        UserError: If an optional package is not installed, an address cannot be used or the model
            cannot be loaded.
    """
    require_package("prometheus_client", "the server")
    asyncio.run(_Server(options, require_package("aiohttp.web", "the server")).run())


class _Server:
    def __init__(self, options: ServerOptions, web):
        self._options = options
        self._web = web
        self._metrics = Metrics()
        queue = options.token_budget, options.batch_wait, options.limits, self._metrics
        self._versions = ModelVersions(
            options.model_name,
            options.model_dir,
            lambda model: Batcher(model, *queue),
            options.pairs,
            options.trusted,
            options.precision,
            self._metrics,
            options.version_labels,
        )
        requests = ModelRequests(self._versions, options.limits)
        self._api = RestApi(requests)
        self._memory = Memory(options.limits.max_buffered)
        self._page = importlib.resources.files(__package__).joinpath("page.html").read_text("utf-8")
        hosts, origins = options.allowed_hosts, options.allowed_origins
        access = Access(options.host, hosts, origins, options.api_keys)
        self._answer = guarded(web, access, self._error)
        self._stop = asyncio.Event()
        self._answered = 0
        self._requests = Users()  # that are being answered
        self._grpc = None
        if options.grpc_port is not None:
            shared = self._memory, self._requests, self._metrics, self._stop
            self._grpc = GrpcServer(GrpcApi(requests), access, options.limits, *shared)

    async def run(self):
        loop = asyncio.get_running_loop()
        listener = listen(
            self._options.host, self._options.port, self._options.limits.write_timeout
        )
        temporary = tempfile.TemporaryDirectory(prefix="bert_tf_serve_", ignore_cleanup_errors=True)
        with temporary as tempfile.tempdir, contextlib.closing(listener):
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled)
            loop.set_exception_handler(LoopErrors())
            sys.setswitchinterval(_SWITCH_SECONDS)
            protocols = 1 if self._grpc is None else 2
            most = allowed_connections(self._options.limits.max_connections, protocols)
            if self._grpc is not None:
                self._grpc.bind(self._options.host, self._options.grpc_port, most)
            # The collector stops all threads, for tenths of a second if it looks at all objects of
            # TensorFlow. The model is left out, because it is collected when it is unloaded.
            gc.freeze()
            if await self._loaded():
                await self._serve(listener, most)
            kill_exports()
        answered = self._answered + (0 if self._grpc is None else self._grpc.answered)
        print(f"Stopped: {answered} requests answered", flush=True)
        logging.shutdown()
        # All requests are answered. Threads of TensorFlow, or that load a version, are not joined,
        # because they could keep the process running forever. Their files are removed.
        os._exit(0)

    async def _serve(self, listener, max_connections):
        runner = self._runner()
        await runner.setup()
        loop = asyncio.get_running_loop()
        self._connections = Connections(runner.server, max_connections)
        server = await loop.create_server(
            self._connections, sock=listener, backlog=ACCEPTED_AT_ONCE
        )
        listener.listen(_BACKLOG)
        if self._grpc is not None:
            await self._grpc.start()
            print(f"gRPC: {self._options.host}:{self._grpc.port}", flush=True)
        print_address(f"Serving {self._options.model_name}", listener)
        watching = self._versions.watch(self._options.poll_seconds)
        watcher = loop.create_task(watching)
        await self._stop.wait()
        await asyncio.sleep(self._options.drain_seconds)
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        if self._grpc is not None:
            self._grpc.refuse_further(self._options.stop_seconds)
        await _close_port(server, self._connections, listener)
        # aiohttp's cleanup stops reading, so current requests must be answered before it.
        ends = [self._requests.none.wait, runner.cleanup, self._versions.close]
        if self._grpc is not None:
            ends.insert(1, self._grpc.close)
        for end in ends:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(end(), self._options.stop_seconds)

    async def _loaded(self):
        """Loads the model; returns False if the server is stopped before it is loaded."""
        loading = asyncio.ensure_future(self._versions.load_first())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            return False  # the thread that loads ends with the process
        await loading
        return True

    def _signalled(self):
        if self._stop.is_set():
            log.warning("Received a second signal: stopping immediately")
            os._exit(1)
        self._stop.set()

    def _runner(self):
        @self._web.middleware
        async def counted(request, handler):
            started = time.monotonic()
            busy = self._connections.busy(request.protocol)
            with busy as is_full, self._memory.share() as request["hold"]:
                is_full = is_full and request.path not in (*PROBES, *_METRICS)
                with self._requests, self._metrics.requests_in_progress.track_inprogress():
                    response = await self._answer(request, self._refuse if is_full else handler)
                seconds = time.monotonic() - started
                if self._stop.is_set() or is_full:
                    response.force_close()
                # Sent here instead of by aiohttp, so that its memory is counted until it is sent.
                with contextlib.suppress(ConnectionError):
                    await response.prepare(request)
                    if "parts" in request:
                        async for part in request["parts"]:
                            await response.write(part)
                    await response.write_eof()
                # After the answer, which need not wait for it.
                method = request.get("method", "other")
                self._metrics.requests.labels("rest", method, str(response.status)).inc()
                self._metrics.request_seconds.labels("rest", method).observe(seconds)
                self._answered += 1
                return response

        application = self._web.Application(middlewares=[counted])
        router = application.router
        for path in (*retrieval_forms.PATHS, rest_api.PREFIX + "{rest:.*}"):
            router.add_route("*", path, self._rest)
        router.add_get("/", self._show_page)  # and HEAD, as all the others
        router.add_get("/page.json", self._show_page_facts)
        router.add_get(HEALTH, self._show_health)
        router.add_get(READY, self._show_ready)
        for path in _METRICS:
            router.add_get(path, self._show_metrics)
        # Time for the rest of a body that was refused, and for answers that are being sent.
        seconds = {"lingering_time": 2.0, "shutdown_timeout": _WRITE_SECONDS}
        return make_runner(self._web, application, self._options.limits, **seconds)

    async def _refuse(self, request):
        raise self._connections.refusal()

    async def _rest(self, request):
        target = rest_api.parse_path(request.method, request.rel_url.raw_path)
        request["method"] = target.action
        answer = await self._api.answer(target, request, request["hold"])
        if isinstance(answer, str):
            return self._web.json_response(text=answer)
        request["parts"] = answer
        response = self._web.StreamResponse()
        response.content_type, response.charset = "application/json", "utf-8"
        return response

    async def _show_page(self, request):
        style, script = (
            self._page.partition(f"<{name}>")[2].partition(f"</{name}>")[0]
            for name in ("style", "script")
        )
        headers = {"Content-Security-Policy": page_policy(style, script, "'self'")}
        return self._web.Response(text=self._page, content_type="text/html", headers=headers)

    async def _show_page_facts(self, request):
        return self._json(self._api.page_facts())

    async def _show_health(self, request):
        return self._json({"status": "alive"})

    async def _show_ready(self, request):
        ready = self._versions.current is not None and not self._stop.is_set()
        return self._json({"ready": ready}, 200 if ready else 503)

    async def _show_metrics(self, request):
        current = self._versions.current
        self._metrics.version.set(current.number if current else 0)
        self._metrics.requests_waiting.set(self._versions.waiting)
        body, content_type = self._metrics.page()
        return self._web.Response(body=body, headers={"Content-Type": content_type})

    def _error(self, request, error):
        message = error.message
        if error.flag:
            self._metrics.refused.labels(error.flag).inc()
            message += f" See --{error.flag}."
        if retrieval_forms.is_openais(request.method, request.path):
            body = retrieval_forms.openai_error(message, error.status)
        else:
            body = {"error": message}
        return self._json(body, error.status, error.headers)

    def _json(self, values, status=200, headers=None):
        text = rest_api.write_json_text(values)
        return self._web.json_response(text=text, status=status, headers=headers)


async def _close_port(server, connections, listener):
    """Closes the port without losing connections that the operating system has accepted."""
    waiting = listener.dup()
    server.close()
    loop = asyncio.get_running_loop()
    with contextlib.closing(waiting):
        waiting.setblocking(False)
        accepted = []
        with contextlib.suppress(OSError):  # no more, or no descriptor for more
            while True:
                accepted.append(waiting.accept()[0])
    for connection in accepted:
        await loop.connect_accepted_socket(connections, connection)
    # Without this pause, a connection that has just been made would not notice the shutdown, and
    # aiohttp would wait for it. Requests that arrive later are not answered.
    await asyncio.sleep(_SETTLE_SECONDS)
