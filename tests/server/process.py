"""A server as a process of its own, and a client of the standard library to ask it."""

import faulthandler
import http.client
import json
import os
import pathlib
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable

from tests.tools.running import start

PATIENCE = 60  # seconds before a test gives up on something that always comes


class ServerProcess:
    """A running tools/serve.py; use it in `with`.

    Args:
        model: The directory to serve.
        *flags: Flags of the program.
        is_real_start: Whether an interpreter of its own imports all that the server needs. Others
            are forked from where it is imported, in a tenth of the time.
        prepare: An importable function that is called in a fork before the program.

    Attributes:
        process: The `Process`.
        port: Where it listens.
    """

    PROGRAM = "serve"
    FLAGS = ("--model_name=tiny", "--threads=1")
    STARTED = r"^Serving \S+: http://.*:(\d+)/"

    def __init__(
        self, model, *flags, is_real_start: bool = False, prepare: Callable = faulthandler.enable
    ):
        self._folder = tempfile.TemporaryDirectory()
        self.process = start(
            self.PROGRAM,
            f"--model={model}",
            "--port=0",
            *self.FLAGS,
            *flags,
            output=pathlib.Path(self._folder.name, "output"),
            environment={"PYTHONFAULTHANDLER": "1"},  # of an interpreter, which a fork is not
            prepare=None if is_real_start else prepare,
            is_real_start=is_real_start,
        )
        end = time.monotonic() + PATIENCE
        while (port := self._listens_at()) is None:
            if not self.process.is_alive() or time.monotonic() > end:
                self.process.kill()
                raise AssertionError("The server did not start:\n" + self.process.text())
            time.sleep(0.01)
        self.port = port

    def _listens_at(self):
        found = re.search(self.STARTED, self.process.text(), re.MULTILINE)
        return int(found.group(1)) if found else None

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body of one answer, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None):
        """Status and parsed JSON of one answer."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        status, answer_headers, text = self.ask(method, path, body, headers)
        assert answer_headers["Content-Type"].startswith("application/json"), text
        return status, json.loads(text)

    def predict(self, body, path="/v1/models/tiny"):
        """Status and answer of a prediction."""
        return self.json("POST", f"{path}:predict", body)

    def metric(self, name):
        """The value of a sample on the page for Prometheus."""
        _, _, text = self.ask("GET", "/monitoring/prometheus/metrics")
        match = re.search(rf"^{re.escape(name)} (\S+)$", text.decode(), re.MULTILINE)
        return float(match.group(1)) if match else 0.0

    def stop(self):
        """Sends SIGTERM and waits; the exit status and all that was printed.

        A server that hangs is made to print where its threads are.
        """
        self.process.terminate()
        hangs = threading.Timer(PATIENCE, os.kill, (self.process.pid, signal.SIGABRT))
        hangs.start()
        try:
            return self.process.wait(2 * PATIENCE), self.process.text()
        finally:
            hangs.cancel()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.is_alive():
            self.process.kill()
            self.process.wait()
        self._folder.cleanup()
