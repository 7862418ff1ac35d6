"""Whatever comes in: an answer in TensorFlow Serving's form, and the others are served."""

import concurrent.futures
import contextlib
import gzip
import json
import re
import select
import socket
import threading
import zlib

import pytest

from tests.server.conftest import LIMITS
from tests.server.process import PATIENCE

GOOD = {"instances": ["the good film."]}
PATH = "/v1/models/tiny:predict"
# A header without the time: each process of pytest-xdist must give the test the same name.
CUT_GZIP = gzip.compress(json.dumps(GOOD).encode(), mtime=0)[:-9]

BODIES = {
    "empty": (b"", "The document is empty"),
    "no JSON": (b"instances = [1, 2]", "JSON Parse error"),
    "half": (b'{"instances": ["good"', "JSON Parse error"),
    "no object": (b'["good"]', "Is not object"),
    "no UTF-8": (b'{"instances": ["\xff\xfe"]}', "not UTF-8"),
    "half a character": (b'{"instances": ["\\ud800"]}', "surrogate"),
    "nested": (b'{"instances": ' + b"[" * 40_000 + b"]" * 40_000 + b"}", "nested too deeply"),
    "65 lists": (b'{"instances": ' + b"[" * 65 + b'"a"' + b"]" * 65 + b"}", "must be string [?]"),
    "900 lists": (b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}", "must be string [?]"),
    "large number": (b'{"instances": [' + b"9" * 10_000 + b"]}", "JSON Parse error"),
    "no key": (b"{}", "Missing 'inputs' or 'instances' key"),
    "both keys": (b'{"instances": ["a"], "inputs": ["a"]}', "expecting only one of"),
    "signature number": (b'{"signature_name": 100}', "must be a string"),
    "signature unknown": (b'{"signature_name": "x", "instances": ["a"]}', "not found in signature"),
    "signature of a surrogate": (
        b'{"signature_name": "\\ud800", "instances": ["a"]}',
        'Serving signature name: "?" not found',
    ),
    "instances text": (b'{"instances": "a"}', "to be an list/array"),
    "instances none": (b'{"instances": []}', "No values in 'instances'"),
    "number": (b'{"instances": ["a", 1]}', "not of expected type: string"),
    "null": (b'{"instances": [null]}', "not of expected type: string"),
    "true": (b'{"instances": [true]}', "not of expected type: string"),
    "deeper": (b'{"instances": [["a"]]}', "must be string [?]"),
    "uneven": (b'{"instances": ["a", ["b"]]}', "unexpected level"),
    "uneven names": (b'{"instances": [{"text": "a"}, "b"]}', "Expecting object"),
    "another name": (b'{"instances": [{"txt": "a"}]}', "keys must be equal to: text"),
    "one name more": (b'{"instances": [{"text": "a", "x": "b"}]}', "keys must be equal to"),
    "input missing": (b'{"inputs": {"txt": ["a"]}}', "Missing named input: text"),
    "input unknown": (b'{"inputs": {"text": ["a"], "x": []}}', "Unknown named input"),
    "inputs scalar": (b'{"inputs": "a"}', "must be string [?]"),
    "inputs none": (b'{"inputs": []}', "at least one row"),
    "no base64": (b'{"instances": [{"b64": "%%%"}]}', "unable to base64 decode"),
    "base64 no UTF-8": (b'{"instances": [{"b64": "/w=="}]}', "must be text in UTF-8"),
    "ids and mask differ": (
        b'{"signature_name": "tokens", "inputs": {"token_ids": [[2, 3]], "segment_ids": [[0, 0]],'
        b' "padding_mask": [[true, true], [true, true]]}}',
        "the same number of rows",
    ),
    "id is text": (
        b'{"signature_name": "tokens", "instances": [{"token_ids": ["a"], "segment_ids": [0],'
        b' "padding_mask": [true]}]}',
        "not of expected type: int32",
    ),
    "id out of int32": (
        b'{"signature_name": "tokens", "instances": [{"token_ids": [3000000000],'
        b' "segment_ids": [0], "padding_mask": [true]}]}',
        "not of expected type: int32",
    ),
    "id out of the vocabulary": (
        b'{"signature_name": "tokens", "instances": [{"token_ids": [2, 5000],'
        b' "segment_ids": [0, 0], "padding_mask": [true, true]}]}',
        "`token_ids` must have values from 0 to 63. Received: 5000 at [0, 1]",
    ),
    "segment of a third text": (
        b'{"signature_name": "tokens", "instances": [{"token_ids": [2, 3],'
        b' "segment_ids": [0, -1], "padding_mask": [true, true]}]}',
        "`segment_ids` must have values from 0 to 1. Received: -1 at [0, 1]",
    ),
    "other lengths": (  # once answered without a word, for the first two segments
        b'{"signature_name": "tokens", "instances": [{"token_ids": [2, 3],'
        b' "segment_ids": [0, 0, 0], "padding_mask": [true, true]}]}',
        "the same shape",
    ),
    "ragged rows": (
        b'{"signature_name": "tokens", "inputs": {"token_ids": [[2, 3], [2]],'
        b' "segment_ids": [[0], [0]], "padding_mask": [[true], [true]]}}',
        "Input token_ids: Encountered list at unexpected size",
    ),
    "no ids": (
        b'{"signature_name": "tokens", "instances": [{"token_ids": [],'
        b' "segment_ids": [], "padding_mask": []}]}',
        "at least one value in each row",
    ),
    "only padding": (  # once answered by what the bias says
        b'{"signature_name": "tokens", "inputs": {"token_ids": [[2, 3], [2, 3]],'
        b' "segment_ids": [[0, 0], [0, 0]], "padding_mask": [[true, true], [false, false]]}}',
        "`padding_mask` must be true at one token or more of each row, and at its `[CLS]`",
    ),
    "[CLS] as padding": (
        b'{"signature_name": "tokens", "instances": [{"token_ids": [2, 3],'
        b' "segment_ids": [0, 0], "padding_mask": [false, true]}]}',
        "Received (rows where it is not):] [0]",
    ),
    "more ids than positions": (
        json.dumps(
            {
                "signature_name": "tokens",
                "instances": [
                    {"token_ids": [2] * 41, "segment_ids": [0] * 41, "padding_mask": [True] * 41}
                ],
            }
        ).encode(),
        "at most 40 values in a row. Received: 41",
    ),
    "broken examples": (
        b'{"signature_name": "examples", "instances": [{"b64": "//5icm9rZW4="}]}',
        "`examples` must hold serialised tf.train.Examples",
    ),
    "examples without the text": (
        b'{"signature_name": "examples", "instances": [{"b64": ""}]}',
        "Feature: text (data type: string) is required but could not be found.",
    ),
    "long text": (json.dumps({"instances": ["a" * 2001]}).encode(), "at most 2000 characters"),
    "many rows": (json.dumps({"instances": ["a"] * 65}).encode(), "at most 64 rows"),
}


@pytest.fixture(autouse=True)
def others_are_served(server):
    """Before and after: the same request, the same answer, the same process.

    The last digits may differ: the requests of a test may share a batch with the one after it.
    """
    status, before = server.predict(GOOD)
    assert status == 200
    yield
    status, after = server.predict(GOOD)
    assert status == 200
    for one, other in zip(before["predictions"], after["predictions"], strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)
    assert server.process.is_alive()


@pytest.mark.parametrize("name", BODIES)
def test_bodies(server, name):
    body, message = BODIES[name]
    status, answer = server.predict(body)
    assert (status, list(answer)) == (400, ["error"])
    assert message in answer["error"]
    assert "node" not in answer["error"] and "Graph" not in answer["error"]


def test_texts_at_the_limit_are_answered(server):
    texts = ["", " ", "\0", "\u202e", "a" * 2000, "漢" * 2000, "😀" * 2000]
    status, answer = server.predict({"instances": texts})
    assert status == 200 and len(answer["predictions"]) == len(texts)


def _connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def _answer(connection):
    """Everything until the server closes the connection or has sent its announced length."""
    received = b""
    while True:
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = [line for line in lines if line.startswith(b"content-length")]
        if body and length and len(body) >= int(length[0].split(b":")[1]):
            return received
        part = connection.recv(65536)
        if not part:
            return received
        received += part


def test_a_body_of_100_megabytes_is_refused_unread(server):
    before = server.metric("process_resident_memory_bytes")
    with _connect(server) as connection:
        connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            % (PATH.encode(), 100 << 20)
        )
        answer = _answer(connection)  # before a byte of the body
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"error"' in answer
    assert server.metric("process_resident_memory_bytes") < before + (50 << 20)


def test_a_body_without_an_end_is_refused(server):
    with _connect(server) as connection:
        connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            % PATH.encode()
        )
        chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        for _ in range(LIMITS["max_body_bytes"] // 0x4000 + 1):
            connection.sendall(chunk)
        assert _answer(connection).startswith(b"HTTP/1.1 413 ")


def test_a_small_body_that_unpacks_to_a_large_one_is_refused(server):
    body = gzip.compress(b" " * (20 << 20))
    assert len(body) < LIMITS["max_body_bytes"]
    status, answer = server.json("POST", PATH, body, {"Content-Encoding": "gzip"})
    assert status == 413 and "at most 100000 bytes" in answer["error"]
    body = gzip.compress(json.dumps(GOOD).encode())
    assert server.json("POST", PATH, body, {"Content-Encoding": "gzip"})[0] == 200


@pytest.mark.parametrize(
    ("encoding", "body", "status", "message"),
    [
        ("deflate", zlib.compress(json.dumps(GOOD).encode()), 200, None),
        ("Identity", json.dumps(GOOD).encode(), 200, None),
        ("gzip", CUT_GZIP, 400, "must be complete gzip data"),
        ("gzip", b"", 400, "must be complete gzip data"),
        ("gzip", json.dumps(GOOD).encode(), 400, "must be gzip data"),
        ("br", b"{}", 415, "`Content-Encoding` must be gzip, deflate or identity. Received: br"),
    ],
)
def test_encodings_of_bodies(server, encoding, body, status, message):
    received, answer = server.json("POST", PATH, body, {"Content-Encoding": encoding})
    assert received == status
    assert message is None or message in answer["error"]


def test_slow_bodies_and_heads_end(server):
    with _connect(server) as body, _connect(server) as head:
        body.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{" % PATH.encode()
        )
        head.sendall(b"POST %s HTTP/1.1\r\nHos" % PATH.encode())
        assert server.predict(GOOD)[0] == 200  # while both are at it
        assert _answer(body).startswith(b"HTTP/1.1 408 ")
        assert _answer(head) == b""  # closed


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
def test_who_takes_no_answers_is_cut_off(server):
    """More answers than the system's buffers hold, and nobody takes them."""
    with _connect(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        requests = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
        asked = threading.Thread(target=_send_until_closed, args=(connection, requests))
        asked.start()
        assert server.predict(GOOD)[0] == 200
        closed = select.poll()
        closed.register(connection, 0)  # neither to read nor to write: only its end
        assert closed.poll(1000 * PATIENCE)
        asked.join(PATIENCE)
        assert not asked.is_alive()


def _send_until_closed(connection, text):
    with contextlib.suppress(ConnectionError):
        while True:
            connection.sendall(text)


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n" % PATH.encode(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: 4\r\n\r\nabcd" % PATH.encode(),
    ],
)
def test_what_is_no_http(server, text):
    with _connect(server) as connection:
        connection.sendall(text)
        assert re.match(rb"HTTP/1\.[01] 400 ", _answer(connection))


def test_clients_that_leave_without_their_answer(server):
    body = json.dumps({"instances": ["good film"] * 64}).encode()
    for _ in range(20):
        with _connect(server) as connection:
            connection.sendall(
                b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                % (PATH.encode(), len(body), body)
            )


def test_a_flood_is_answered_or_refused(server):
    """64 clients at a time against a queue of 16: every request is answered, by 200 or 429."""
    with concurrent.futures.ThreadPoolExecutor(64) as clients:
        answers = list(
            clients.map(lambda _: server.predict({"instances": ["good film"] * 64}), range(256))
        )
    refused = [answer for status, answer in answers if status != 200]
    assert {status for status, _ in answers} <= {200, 429}
    assert len(refused) < len(answers)
    assert all("are already waiting" in answer["error"] for answer in refused)


def test_idle_connections_keep_nobody_out(server, is_full):
    """Neither of these takes a place from others, nor a descriptor for good."""
    count = 4000 if is_full else 300
    before = server.metric("process_open_fds")
    connections = [_connect(server) for _ in range(count)]
    try:
        for connection, text in zip(
            connections,
            [
                b"POST ",
                b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
                % PATH.encode(),
            ],
        ):
            connection.sendall(text)
        assert server.predict(GOOD)[0] == 200
    finally:
        for connection in connections:
            connection.close()
    for _ in range(100 * PATIENCE):
        if server.metric("process_open_fds") <= before + 2:
            return
    raise AssertionError("Descriptors of closed connections are still open")


def test_requests_one_after_the_other_without_waiting(server):
    """HTTP pipelining: every request gets its own answer, in order."""
    bodies = [json.dumps(GOOD).encode(), b"{}", json.dumps(GOOD).encode()]
    with _connect(server) as connection:
        connection.sendall(
            b"".join(
                b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s"
                % (PATH.encode(), len(body), b"Connection: close\r\n" if last else b"", body)
                for body, last in zip(bodies, (False, False, True))
            )
        )
        received = b""
        while part := connection.recv(65536):
            received += part
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"400", b"200"]
