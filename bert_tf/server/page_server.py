"""Serves one page to one person on one machine; one thread computes the answers.

Only JSON of the page itself is answered; `access.py` says which requests are refused.
"""

import asyncio
import concurrent.futures
import json
import logging
import os
import signal
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError
from bert_tf.server.access import Access
from bert_tf.server.errors import RequestError
from bert_tf.server.guard import guarded
from bert_tf.server.limits import Limits, Memory, read_body
from bert_tf.server.listener import listen, make_runner, print_address

_MOST_WAITING = 8  # requests; each may take minutes
_STOP_SECONDS = 1.0  # for answers that are being sent
# Checks the JSON of a request and returns the function that computes the answer, as JSON values.
Action = Callable[[Any], Callable[[], Any]]


class PageServer:
    """A server whose port is bound at once, so that a wrong address is found before a model loads.

    Args:
        host: The address, or a name of it.
        port: The port; 0 chooses a free one.
        max_body: The maximum number of bytes of a request.

    Raises:
        UserError: If aiohttp is not installed, or the address cannot be used.

    Example:
        >>> with bert_tf.server.PageServer(port=0) as server:
        ...     server.port > 0
        True
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 8502, max_body: int = 1 << 20):
        self._web = require_package("aiohttp.web", "the page")
        self._host, self._limits = host, Limits(max_body=max_body)
        self._listener = listen(host, port, self._limits.write_timeout)
        self._memory = Memory(self._limits.max_buffered)
        # TensorFlow uses all cores for one computation.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._waiting = 0

    def __enter__(self) -> "PageServer":
        return self

    def __exit__(self, *_) -> None:
        self._listener.close()

    @property
    def port(self) -> int:
        """The port."""
        return self._listener.getsockname()[1]

    def run(self, name: str, page: str, actions: Mapping[str, Action]) -> None:
        """Prints the address and serves the page until a signal ends the process.

        The process ends then, without waiting for what is being computed.

        Args:
            name: What is printed before the address.
            page: The HTML of the path `/`.
            actions: The paths to which the page posts JSON, and what answers each. A `UserError` is
                an answer too, with the status 400.
        """
        asyncio.run(self._serve(name, page, actions))
        logging.shutdown()
        # The model's thread may compute for another minute, and Python would wait for it.
        os._exit(0)

    async def _serve(self, name, page, actions):
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        runner = self._runner(page, actions)
        await runner.setup()
        await self._web.SockSite(runner, self._listener).start()
        print_address(name, self._listener)
        await stop.wait()
        await runner.cleanup()

    def _runner(self, page, actions):
        web = self._web

        async def show_page(request):
            return web.Response(text=page, content_type="text/html")

        def answer_with(action):
            async def answer(request):
                return web.json_response(text=await self._computed(request, action))

            return answer

        def show_error(request, error):
            body = {"error": error.message}
            return web.json_response(body, status=error.status, headers=error.headers)

        access = Access(self._host, json_only=True)
        answered = web.middleware(guarded(web, access, show_error))
        application = web.Application(middlewares=[answered])
        application.router.add_get("/", show_page)
        for path, action in actions.items():
            application.router.add_post(path, answer_with(action))
        options = {"handle_signals": False, "shutdown_timeout": _STOP_SECONDS}
        return make_runner(web, application, self._limits, **options)

    async def _computed(self, request, action):
        with self._memory.share() as hold:
            body = await read_body(request, hold, self._limits)
            try:
                asked = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise UserError(f"The body must be JSON. Received: {error}") from None
            compute = action(asked)
        if self._waiting >= _MOST_WAITING:
            message = "Other texts are being inspected. Try again later."
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, message)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, _as_json, compute)
        finally:
            self._waiting -= 1


def _as_json(compute):
    return json.dumps(compute(), allow_nan=False)
