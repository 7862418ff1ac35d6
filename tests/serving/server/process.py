"""tools/serve.py as a process of its own, and a client of the standard library to ask it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading

from tests.conftest import REPOSITORY

PATIENCE = 60  # seconds before a test gives up on something that always comes


class ServerProcess:
    """A running server; use it in `with`.

    Args:
        model: The directory to serve.
        *flags: Flags of tools/serve.py.

    Attributes:
        port: Where it listens.
        lines: What it printed.
    """

    def __init__(self, model, *flags):
        environment = {
            **os.environ,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": os.pathsep.join(
                [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                "tools/serve.py",
                f"--model={model}",
                "--model_name=tiny",
                "--port=0",
                "--threads=1",
                *flags,
            ],
            cwd=REPOSITORY,
            env=environment,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(PATIENCE) or not hasattr(self, "port"):
            self.process.kill()
            raise AssertionError("The server did not start:\n" + "".join(self.lines))

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            match = re.match(r"Serving \S+: http://.*:(\d+)/", line)
            if match:
                self.port = int(match.group(1))
                self._ready.set()
        self._ready.set()

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
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status, "".join(self.lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
