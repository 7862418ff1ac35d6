"""The live inspection page: a text is typed, one model thread inspects it, the page shows it.

    GET  /         the page
    POST /inspect  {"model": 0, "text": …, "pair": …, "target": …, "piece": …}
    POST /heads    the same with "heads": [[layer, head], …], the heads that are switched off

It is for one person on one machine. Only JSON of its own page is answered; `server/access.py` says
which requests are refused.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import json
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from bert_tf.base.json_schema import check, integer, list_of, object_of, optional, text
from bert_tf.base.optional_packages import require
from bert_tf.errors import UserError
from bert_tf.inspection.head_masks import without_heads
from bert_tf.inspection.inspection import MAX_TOKENS, inspect_text, inspected_rows
from bert_tf.inspection.page import page_of
from bert_tf.inspection.page_data import answers_data, page_data
from bert_tf.inspection.targets import Target
from bert_tf.server.access import Access
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.guard import guarded
from bert_tf.server.limits import Limits, Memory, read_body
from bert_tf.server.listener import listen

MAX_TEXT_LENGTH = 20_000  # characters; a model reads 512 tokens
_MOST_WAITING = 8  # requests; each may take minutes
_STOP_SECONDS = 1.0  # for answers that are being sent
_HEAD = list_of(integer(), least=2, most=2)  # a layer and its head
_REQUEST = object_of(
    {
        "model": integer(),
        "text": text(),
        "pair": optional(text()),
        "target": optional(integer()),
        "piece": optional(integer()),
        "heads": optional(list_of(_HEAD, most=10_000)),
    },
    only=True,
)
Models = Sequence[tuple[str, Any]]


@dataclasses.dataclass(frozen=True)
class InspectionOptions:
    """The options of the live page."""

    host: str = "127.0.0.1"
    port: int = 8502  # 0 chooses a free port
    # What the form shows at first, by its names: "text", "pair", "text_b", "pair_b".
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_text_length: int = MAX_TEXT_LENGTH
    max_tokens: int = MAX_TOKENS  # of one part; see `inspect_text`


def serve_inspections(load_models: Callable[[], Models], options: InspectionOptions) -> None:
    """Prints the address when the models are loaded, and serves the page until a signal ends it.

    The process ends then, without waiting for what is being computed.

    Args:
        load_models: Returns one model or two, each with its name. It is called once the port is
            bound, so that a wrong address is found before a model is read.
        options: The options.

    Raises:
        UserError: If aiohttp is not installed, or the address cannot be used.
    """
    web = require("aiohttp.web", "the page")
    limits = Limits(max_body=16 * options.max_text_length)
    with contextlib.closing(listen(options.host, options.port, limits.write_timeout)) as listener:
        server = _Server(load_models(), options, limits, web)
        asyncio.run(server.run(listener))
    logging.shutdown()
    # The model's thread may compute for another minute, and Python would wait for it.
    os._exit(0)


class _Server:
    def __init__(self, models, options, limits, web):
        self._models, self._options, self._limits, self._web = models, options, limits, web
        names = [name for name, _ in models]
        live = {**options.texts, "models": names, "maxLength": options.max_text_length}
        title = "Inspection: " + " and ".join(names)
        self._page = page_of({"title": title, "live": live, "inspections": []}).encode()
        self._memory = Memory(limits.max_buffered)
        # TensorFlow uses all cores for one computation.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._waiting = 0

    async def run(self, listener):
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        runner = self._runner()
        await runner.setup()
        await self._web.SockSite(runner, listener).start()
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        names = " and ".join(name for name, _ in self._models)
        print(f"Inspecting {names}: http://{shown}:{port}/", flush=True)
        await stop.wait()
        await runner.cleanup()

    def _runner(self):
        web = self._web

        access = Access(self._options.host, json_only=True)
        answered = web.middleware(guarded(web, access, self._error))
        application = web.Application(middlewares=[answered])
        application.router.add_get("/", self._show_page)
        application.router.add_post("/inspect", self._inspect)
        application.router.add_post("/heads", self._heads)
        quiet = logging.getLogger("bert_tf.serving.http")  # logs invalid HTTP of clients
        quiet.setLevel(logging.CRITICAL)
        return web.AppRunner(
            application,
            access_log=None,
            logger=quiet,
            auto_decompress=False,  # see `read_body`
            handle_signals=False,
            keepalive_timeout=self._limits.idle_timeout,
            handler_cancellation=True,  # do not compute what nobody waits for
            shutdown_timeout=_STOP_SECONDS,
        )

    async def _show_page(self, request):
        return self._web.Response(body=self._page, content_type="text/html", charset="utf-8")

    async def _inspect(self, request):
        return await self._computed(request, self._inspection_of)

    async def _heads(self, request):
        return await self._computed(request, self._answers_without)

    async def _computed(self, request, compute):
        with self._memory.share() as hold:
            asked = self._checked(await read_body(request, hold, self._limits))
        if self._waiting >= _MOST_WAITING:
            message = "Other texts are being inspected. Try again later."
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, message)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self._thread, _as_json, compute, asked)
        finally:
            self._waiting -= 1
        return self._web.Response(text=body, content_type="application/json")

    def _checked(self, body):
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise invalid(f"The body must be JSON. Received: {error}") from None
        check(asked, _REQUEST, None, UserError)
        if asked["model"] >= len(self._models):
            raise invalid(f"`model` must be below {len(self._models)}. Received: {asked['model']}")
        for name in ("text", "pair"):
            length, most = len(asked.get(name) or ""), self._options.max_text_length
            if length > most:
                raise invalid(f"`{name}` must have at most {most} characters. Received: {length}")
        return {"pair": None, "target": None, "piece": None, "heads": None, **asked}

    def _inspection_of(self, asked):
        name, model = self._models[asked["model"]]
        found = inspect_text(
            model,
            asked["text"],
            asked["pair"],
            target=asked["target"],
            piece=asked["piece"],
            model_name=name,
            max_tokens=self._options.max_tokens,
        )
        return {"inspection": page_data(found)}

    def _answers_without(self, asked):
        _, model = self._models[asked["model"]]
        row, other = inspected_rows(model, None, asked["text"], asked["pair"])
        target = Target(model, row, other, asked["target"], asked["piece"])
        return {"answers": answers_data(without_heads(model, row, target, asked["heads"] or []))}

    def _error(self, request, error):
        return self._web.json_response(
            {"error": error.message}, status=error.status, headers=error.headers
        )


def _as_json(compute, asked):
    return json.dumps(compute(asked), allow_nan=False)
