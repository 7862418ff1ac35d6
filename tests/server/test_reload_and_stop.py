"""A new version and SIGTERM under load: nothing that was sent is lost. Memory stays flat."""

import collections
import http.client
import json
import os
import pathlib
import re
import shutil
import threading

import pytest

from tests.server.process import PATIENCE, ServerProcess

TEXTS = ["the good film.", "bad", "", "good " * 30]


class Load:
    """Clients that ask for ever, each on one connection as long as the server keeps it.

    Attributes:
        statuses: How often each HTTP status came.
        lost: Requests on an open connection that got no answer.
    """

    def __init__(self, port, clients=4):
        self.statuses = collections.Counter()
        self.lost = []
        self._port = port
        self._lock = threading.Condition()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number):
        body = json.dumps({"instances": TEXTS[: number % len(TEXTS) + 1]})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        while True:
            is_new = connection.sock is None
            try:
                connection.request("POST", "/v1/models/tiny:predict", body)
                response = connection.getresponse()
                response.read()
            except OSError as error:
                # The port is closed. A connection that the server never accepted ends by a reset;
                # how many requests it accepted, it says itself.
                if not is_new:
                    self.lost.append(error)
                return
            with self._lock:
                self.statuses[response.status] += 1
                self._lock.notify_all()

    @property
    def answered(self):
        return sum(self.statuses.values())

    def wait_for(self, count):
        """Returns after that many more answers."""
        with self._lock:
            goal = self.answered + count
            assert self._lock.wait_for(lambda: self.answered >= goal, 10 * PATIENCE + count / 20)

    def join(self):
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def _publish(folder, version):
    """A version that appears whole, as `export` makes one."""
    shutil.copytree(folder / "1", folder / ".new")
    os.rename(folder / ".new", folder / str(version))


def _unused_libraries(pid):
    """Libraries of packages that Keras imports if they are there, and a server does not need."""
    maps = pathlib.Path(f"/proc/{pid}/maps")
    text = maps.read_text() if maps.exists() else ""  # only on Linux
    return set(re.findall(r"site-packages/(pandas|sklearn|matplotlib)/.*", text))


def _run(exported, folder, requests, check_memory):
    """Loads, reloads and stops a server under load; its count of answers and the clients'."""
    shutil.copytree(exported / "1", folder / "1")
    others, flags = 0, ("--poll_seconds=0.1", "--stop_seconds=20")
    with ServerProcess(folder, *flags, is_real_start=True) as server:
        assert not _unused_libraries(server.process.pid)
        load = Load(server.port)
        load.wait_for(requests // 4)
        _publish(folder, 2)
        states = {}
        while states != {"1": "END", "2": "AVAILABLE"}:
            status, answer = server.json("GET", "/v1/models/tiny")
            others += 1
            assert status == 200
            states = {row["version"]: row["state"] for row in answer["model_version_status"]}
        load.wait_for(requests // 4)
        if check_memory:
            before = server.metric("process_resident_memory_bytes")
            load.wait_for(requests)
            after = server.metric("process_resident_memory_bytes")
            others += 2
            print(f"memory {before / 2**20:.1f} -> {after / 2**20:.1f} MiB in {requests} requests")
            assert after < before + (16 << 20)
        status, printed = server.stop()
        load.join()
    assert status == 0, printed
    assert not load.lost
    assert set(load.statuses) == {200}
    assert f"Stopped: {load.answered + others} requests answered" in printed
    assert "Traceback" not in printed


def test_nothing_is_lost(exported, tmp_path):
    _run(exported, tmp_path, 100, check_memory=False)


@pytest.mark.full
def test_memory_is_flat_over_100000_requests(exported, tmp_path):
    _run(exported, tmp_path, 100_000, check_memory=True)
