"""More connections than the process may open: probes are answered, and the log stays short."""

import asyncio
import contextlib
import faulthandler
import os
import resource
import signal
import socket
import types

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from bert_tf.server.connections import ACCEPTED_AT_ONCE
from bert_tf.server.limits import Limits, read_body
from tests.server.process import PATIENCE, ServerProcess

_DESCRIPTORS = 57  # beyond those of the fork, as an interpreter of its own has with `ulimit -n 64`
_MOST = 20
_HALF_A_BODY = (
    b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
)


def few_descriptors():
    faulthandler.enable()
    most = len(os.listdir("/dev/fd")) + _DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _connections(server, stack, count):
    address = ("127.0.0.1", server.port)
    make = socket.create_connection
    return [stack.enter_context(make(address, timeout=PATIENCE)) for _ in range(count)]


def _probe(server):
    assert server.json("GET", "/healthz") == (200, {"status": "alive"})


def test_descriptors_are_left_for_probes(exported):
    good = {"instances": ["good"]}
    with (
        ServerProcess(exported, "--read_timeout_seconds=5", prepare=few_descriptors) as server,
        contextlib.ExitStack() as stack,
    ):
        _connections(server, stack, 120)
        _probe(server)
        assert server.predict(good)[0] == 200
        for _ in range(10):  # connections whose bytes are not read yet are idle, and closed
            for connection in _connections(server, stack, 20):
                with contextlib.suppress(ConnectionError):
                    connection.sendall(_HALF_A_BODY)
            _probe(server)
            status, headers, body = server.ask("POST", "/v1/models/tiny:predict", "{}")
            if status == 503:
                break
        assert (status, headers["Retry-After"]) == (503, "1")
        assert b"other connections have requests. Try again later. See --max_connections." in body
        assert server.metric('bert_tf_requests_refused_total{flag="max_connections"}') > 0
        stack.close()
        while server.predict(good)[0] == 503:
            pass
        status, printed = server.stop()
    assert status == 0 and "Traceback" not in printed and len(printed.splitlines()) < 40, printed


def test_the_oldest_idle_connection_makes_room(exported):
    with (
        ServerProcess(exported, f"--max_connections={_MOST}") as server,
        contextlib.ExitStack() as stack,
    ):
        first, *others = _connections(server, stack, _MOST)
        _probe(server)  # on the connection after the last
        assert first.recv(1) == b""  # closed
        others[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert others[0].recv(12) == b"HTTP/1.1 200"


def test_connections_that_come_at_once_are_counted(exported):
    most = ACCEPTED_AT_ONCE + 1  # the last connection is not the first of those accepted at once
    with (
        ServerProcess(exported, f"--max_connections={most}") as server,
        contextlib.ExitStack() as stack,
    ):
        os.kill(server.process.pid, signal.SIGSTOP)
        first, *_ = _connections(server, stack, 2 * ACCEPTED_AT_ONCE)
        os.kill(server.process.pid, signal.SIGCONT)
        assert first.recv(1) == b""  # closed


def test_a_connection_that_closes_before_its_body_is_no_failure_of_the_server():
    async def read():
        loop = asyncio.get_running_loop()
        protocol = BaseProtocol(loop)  # without a connection
        content = aiohttp.StreamReader(protocol, 2**16, loop=loop)
        parts = {"content": content, "content_length": 9, "headers": {}, "protocol": protocol}
        await read_body(types.SimpleNamespace(**parts), lambda size: None, Limits())

    with pytest.raises(ConnectionResetError):
        asyncio.run(read())
