"""tools/serving_client.py against a server whose answers the test chooses."""

import contextlib
import http.server
import json
import threading
import time

import pytest

from tests.tools.running import run


@pytest.fixture
def server():
    """A server on loopback: `answers` are sent in turn, `requests` is what came."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.requests.append((self.path, body))
            self.server.keys.append(self.headers.get("Authorization"))
            status, answer, headers = self.server.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if callable(answer):
                answer(self.wfile)
            else:
                text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.wfile.write(text)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.requests, server.keys = [], [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(server, *flags, environment=None):
    address = f"http://127.0.0.1:{server.server_port}"
    flags = ("--model=reviews", f"--server={address}", *flags)
    return run("serving_client", *flags, environment=environment)


def test_rows_in_and_predictions_out(server):
    predictions = [{"label": "bad"}, {"label": "été"}]
    server.answers = [(200, {"predictions": predictions}, {})]
    result = ask(server, "--version=3", "--text=a", "--text=ü", "--pair=b", "--pair=")
    assert [json.loads(line) for line in result.stdout.splitlines()] == predictions, result.stderr
    rows = [{"text": "a", "pair": "b"}, {"text": "ü", "pair": ""}]
    assert server.requests == [
        (
            "/v1/models/reviews/versions/3:predict",
            {"signature_name": "serving_default", "instances": rows},
        )
    ]


def test_an_api_key_of_the_environment(server):
    server.answers = [(200, {"predictions": [1]}, {})] * 2
    assert ask(server, "--text=a").returncode == 0
    assert ask(server, "--text=a", environment={"BERT_TF_API_KEY": "mine"}).returncode == 0
    assert server.keys == [None, "Bearer mine"]


def test_a_busy_server_is_asked_again(server):
    server.answers = [
        (503, {"error": "the queue is full"}, {}),
        (429, b"slow down", {"Retry-After": "0"}),
        (200, {"predictions": [{"label": "good"}]}, {}),
    ]
    result = ask(server, "--text=a", "--deadline=60")
    assert json.loads(result.stdout) == {"label": "good"}, result.stderr
    assert len(server.requests) == 3


def test_retries_end_with_the_last_reason(server):
    server.answers = [(503, {"error": f"busy {number}"}, {}) for number in range(5)]
    result = ask(server, "--text=a", "--deadline=60", "--retries=1")
    assert result.returncode == 1 and len(server.requests) == 2
    assert "after 2 tries" in result.stderr and "busy 1" in result.stderr


def test_the_deadline_is_for_all_tries(server):
    server.answers = [(503, {"error": "busy"}, {"Retry-After": "3600"})]
    result = ask(server, "--text=a", "--deadline=30")
    assert result.returncode == 1 and len(server.requests) == 1
    assert "after 1 try in 30 s" in result.stderr


def test_a_refusal_is_not_repeated(server):
    server.answers = [(400, {"error": "Missing inputs: text"}, {})]
    result = ask(server, "--question=a")
    assert result.returncode == 1 and len(server.requests) == 1
    assert "Missing inputs: text" in result.stderr and "Traceback" not in result.stderr


def test_what_is_no_such_server(server):
    server.answers = [(200, b"<html>", {})]
    assert "TensorFlow Serving's JSON" in ask(server, "--text=a").stderr


def _trickle(file):
    """A space at a time for as long as somebody reads, each soon enough for a socket's time-out."""
    with contextlib.suppress(OSError):
        while True:
            file.write(b" ")
            time.sleep(0.05)


@pytest.mark.parametrize("status", [200, 400])
def test_the_deadline_is_for_answers_that_trickle(server, status):
    server.answers = [(status, _trickle, {})]
    result = ask(server, "--text=a", "--deadline=1", "--retries=0")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "after 1 try in 1 s" in result.stderr and "did not end in time" in result.stderr


@pytest.mark.parametrize(
    ("status", "answer", "headers", "message"),
    [
        (200, b'{"predictions": [', {"Content-Length": "1000"}, "IncompleteRead"),
        (400, b'{"error": "x', {"Content-Length": "1000"}, "IncompleteRead"),
        (200, b'{"predictions": ' + b"[" * 100_000, {}, "TensorFlow Serving's JSON"),
        (400, b"[" * 100_000, {}, "refused the request: HTTP 400: [[["),
        (200, b'{"predictions": null}', {}, "TensorFlow Serving's JSON"),
        (200, b'{"predictions": {"a": 1}}', {}, "TensorFlow Serving's JSON"),
        (200, b"[1]", {}, "TensorFlow Serving's JSON"),
        (200, b"\xff", {}, "TensorFlow Serving's JSON"),
        *(
            pytest.param(
                *(503, b"busy", {"Retry-After": after}, "HTTP 503: busy"),
                marks=() if after in ("\u00b2", "1e999") else pytest.mark.full,
            )
            for after in (
                "\u00b2",
                "nan",
                "-1",
                "inf",
                "1e999",
                "Wed, 21 Oct 2015 07:28:00 GMT",
                "",
            )
        ),
    ],
)
def test_odd_answers_end_in_one_line(server, status, answer, headers, message):
    server.answers = [(status, answer, headers)]
    result = ask(server, "--text=a", "--retries=0")
    assert result.returncode == 1 and message in result.stderr
    assert "Traceback" not in result.stderr and len(result.stderr.splitlines()) == 1


def test_half_a_character_is_printed_as_json(server):
    server.answers = [(200, b'{"predictions": ["\\ud800", "\xc3\xa9"]}', {})]
    result = ask(server, "--text=a", "--text=b")
    assert [json.loads(line) for line in result.stdout.splitlines()] == ["\ud800", "é"]


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "--text and --pair"),
        (["--text=a", "--text=b", "--pair=c"], "must be given the same number of times"),
        (["--text=a", "--server=localhost:1"], "http://host:port"),
    ],
)
def test_wrong_flags(server, flags, message):
    result = ask(server, *flags)
    assert result.returncode == 1 and message in result.stderr and not server.requests
