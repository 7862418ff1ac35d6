"""Public attacks on servers of HTTP, by number. SECURITY.md lists them."""

import contextlib
import re
import socket

import pytest

from tests.server.process import PATIENCE

PATH = b"/v1/models/tiny:predict"
# It must never be answered: a proxy in front of the server would take it for a part of a body.
HIDDEN = b"GET /v1/models/tiny HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
MEGABYTE = 2**20


def _post(*headers, body=b""):
    head = [b"POST %s HTTP/1.1" % PATH, b"Host: localhost", *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


CHUNKED, CLOSE = b"Transfer-Encoding: chunked", b"Connection: close"
SMUGGLED = {
    "CVE-2023-47627 sign": _post(b"Content-Length: +2", body=b"{}"),
    "CVE-2023-47627 underscore": _post(b"Content-Length: 0_2", body=b"{}"),
    "CVE-2023-47641 both": _post(b"Content-Length: 2", CHUNKED, body=b"0\r\n\r\n"),
    "CVE-2024-23829 space": _post(b"Content-Length : 2", body=b"{}"),
    "CVE-2024-23829 name": _post(b"Content-Length\x00: 2", body=b"{}"),
    "CVE-2024-52304 extension": _post(CHUNKED, body=b"0;a\nb\r\n\r\n"),
    "CVE-2025-43859 chunk": _post(CHUNKED, body=b"2\r\n{}XX0\r\n\r\n"),
    "CVE-2025-69224 digit": _post(b"Content-Length: \xef\xbc\x92", body=b"{}"),
    "CVE-2025-69224 chunk": _post(CHUNKED, body=b"\xef\xbc\x92\r\n{}\r\n0\r\n\r\n"),
    "CVE-2026-34525 hosts": _post(b"Host: other.example"),
    "two lengths": _post(b"Content-Length: 2", b"Content-Length: 3", body=b"{}"),
    "xchunked": _post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "chunked twice": _post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"),
    "not chunked": _post(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"),
    "folded": _post(b"X: a", b" Content-Length: 2", body=b"{}"),
}


def _all_answers(server, *parts):
    """What the server sends until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
            while part := connection.recv(65536):
                received += part
    return received


@pytest.fixture(autouse=True)
def others_are_served(server):
    yield
    assert server.predict({"instances": ["the good film."]})[0] == 200


@pytest.mark.parametrize("number", SMUGGLED)
def test_smuggled_requests(server, number):
    received = _all_answers(server, SMUGGLED[number] + HIDDEN)
    assert re.findall(rb"HTTP/1\.[01] (\d+) ", received) == [b"400"]


def test_trailers_cve_2025_53643(server):
    """They end with the request, and what follows is the next one."""
    body = b"2\r\n{}\r\n0\r\nX: y\r\n\r\n"
    received = _all_answers(server, _post(CHUNKED, body=body) + HIDDEN)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", received) == [b"400", b"200"]


@pytest.mark.parametrize(
    "place", ["CVE-2026-22815 headers", "CVE-2026-22815 trailers", "CVE-2026-54277 line"]
)
def test_endless_heads(server, place):
    before = server.metric("process_resident_memory_bytes")
    start = {
        "headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        "trailers": _post(CHUNKED, body=b"0\r\n"),
        "line": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
    }[place.split()[1]]
    part = b"a" * 1000 if place.endswith("line") else b"X: y\r\n" * 200
    received = _all_answers(server, start, *[part] * 40_000)
    assert received[:13] in (b"", b"HTTP/1.1 400 ", b"HTTP/1.0 400 ")
    assert server.metric("process_resident_memory_bytes") < before + 20 * MEGABYTE


def test_pipelined_requests_cve_2026_54273(server):
    """Requests without end of a client that reads no answer."""
    before = server.metric("process_resident_memory_bytes")
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(2000):
                connection.sendall(HIDDEN.replace(b"Connection: close\r\n", b"") * 500)
    assert server.metric("process_resident_memory_bytes") < before + 20 * MEGABYTE


def test_many_chunks_cve_2025_69229(server):
    body = b"1\r\n \r\n" * 90_000 + b"0\r\n\r\n"
    assert _all_answers(server, _post(CHUNKED, CLOSE, body=body)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("end", [b"--a--", b"", b"--a"])
def test_forms_cve_2024_30251_cve_2025_69228(server, end):
    """They are not parsed."""
    form = b'--a\r\nContent-Disposition: form-data; name="b"\r\n\r\nc\r\n' * 1000 + end
    headers = [b"Content-Type: multipart/form-data; boundary=a", b"Content-Length: %d" % len(form)]
    received = _all_answers(server, _post(*headers, CLOSE, body=form))
    assert re.match(rb"HTTP/1\.1 (400|415) ", received)


@pytest.mark.parametrize(
    "path",
    [
        b"/../../../../etc/hostname",
        b"/static/../../etc/hostname",
        b"/..%2f..%2fetc/hostname",
        b"//etc/hostname",
    ],
)
def test_paths_cve_2024_23334_cve_2025_69226(server, path):
    """No file is served by its path."""
    received = _all_answers(server, HIDDEN.replace(b"/v1/models/tiny", path))
    assert received.startswith(b"HTTP/1.1 404 ")
