"""Every writer, failed or killed at each system call: old or new, whole, never a mixture."""

import errno
import json
import shutil
import socket

import pytest

from tests import crash_writers
from tests.system_calls import SUPPORTED, Watcher
from tests.training import processes

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="needs Linux on x86-64")

WRITERS = (
    "huggingface",
    "own format",
    "tf1",
    "sentence encoder",
    "tokenizer",
    "lora",
    "keras",
    "checkpoint of a step",
    "training checkpoint",
    "export",
    "pre-training records",
    "text",
)
KERAS_WEIGHTS = "keras weights"  # HDF5 ends the process where a write fails: that is a kill
SLOW = ("export",)
MOVES = ("rename", "exchange")


class Worker:
    """A process that `tests/crash_writers.py` serves in, its system calls watched."""

    def __init__(self, root):
        self._mine, theirs = socket.socketpair()
        self.process = processes.start(crash_writers.serve, root / "log.txt", connection=theirs)
        theirs.close()
        _, (listener,), _, _ = socket.recv_fds(self._mine, 1, 1)
        self._watcher = Watcher(listener, root / "place")
        self._lines = self._mine.makefile("rw", encoding="utf-8")

    def ask(self, do, writer, directory, value=None, decide=lambda call: 0):
        request = dict(do=do, writer=writer, directory=str(directory), value=value)
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        self._watcher.until_readable(self._mine, decide)
        line = self._lines.readline()
        assert line, f"it died:\n{self.process.text()[-3000:]}"
        return json.loads(line)

    def close(self):
        self.process.kill()
        self.process.wait()
        self._lines.close()
        self._mine.close()
        self._watcher.close()


class Place:
    """A directory in which content 0 of a writer was saved, and in which content 1 is."""

    def __init__(self, worker, root, writer):
        self.worker, self.writer = worker, writer
        self.path, self.template = root / "place", root / "template"
        shutil.rmtree(self.template, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        (self.path / "notes.txt").write_text("the user's own")
        self.write(0)
        self.old = self.read()
        shutil.copytree(self.path, self.template)
        self.calls = []
        self.write(1, lambda call: self.calls.append(call) or 0)
        self.new, self.names = self.read(), self.visible()
        assert self.old != self.new

    def reset(self, template=None):
        shutil.rmtree(self.path)
        shutil.copytree(template or self.template, self.path, symlinks=True)

    def try_write(self, decide=lambda call: 0):
        return self.worker.ask("write", self.writer, self.path, 1, decide)

    def try_read(self, decide=lambda call: 0):
        return self.worker.ask("read", self.writer, self.path, decide=decide)

    def write(self, value, decide=lambda call: 0):
        result = self.worker.ask("write", self.writer, self.path, value, decide)
        assert "error" not in result, result

    def read(self):
        result = self.try_read()
        assert "error" not in result, result
        return result["value"]

    def visible(self):
        return {p for p in self.all_names() if not p.startswith(".")}

    def all_names(self):
        return {str(path.relative_to(self.path)) for path in self.path.rglob("*")}

    def check_that_all_works_again(self, number):
        """After state `number`; a slow writer writes again after some states only."""
        if number % 10 == 0 or self.writer not in SLOW:
            self.write(1)
            assert self.read() == self.new
            assert self.all_names() == self.names, "hidden leftovers"
        assert (self.path / "notes.txt").read_text() == "the user's own"


def points(place, how, is_full):
    """The numbers of the calls to try: without the full suite those that move something."""
    if not is_full:
        return [number for number, call in enumerate(place.calls) if call.name in MOVES]
    return range(0, len(place.calls), 5 if place.writer in SLOW and how != "once" else 1)


class Failing:
    """Lets call number `point` fail: alone, with all after it, or with all of its kind after it."""

    def __init__(self, point, how):
        self.point, self.how, self.number, self.name = point, how, -1, None

    def __call__(self, call):
        self.number += 1
        if self.number == self.point:
            self.name = call.name
        fails = {
            "once": self.number == self.point,
            "for good": self.number >= self.point,
            "its kind for good": self.number >= self.point and call.name == self.name,
        }
        return call.error if fails[self.how] else 0


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("crashes")


@pytest.fixture(scope="module")
def workers(root):
    started = [Worker(root)]
    yield started
    for worker in started:
        worker.close()


@pytest.fixture
def worker(workers, root):
    if not workers[-1].process.is_alive():  # only after a test that failed
        workers.append(Worker(root))
    return workers[-1]


def cases(writers):
    """The writers; those that are no other's example, in the full suite."""
    fast = ("own format", "checkpoint of a step")
    return [pytest.param(name, marks=() if name in fast else pytest.mark.full) for name in writers]


@pytest.mark.parametrize("exchange_works", [True, False])
@pytest.mark.parametrize("writer", cases([*WRITERS, KERAS_WEIGHTS]))
def test_a_kill_leaves_the_old_or_the_new(writer, exchange_works, worker, root, tmp_path, is_full):
    place = Place(worker, root, writer)
    if not exchange_works and not any(call.name == "exchange" for call in place.calls):
        return  # it replaces no directory
    states = []

    def state_before(call):
        if is_full or call.name in MOVES:
            states.append((call, tmp_path / str(len(states))))
            shutil.copytree(place.path, states[-1][1], symlinks=True)
        return 0 if exchange_works or call.name != "exchange" else errno.EINVAL

    place.reset()
    place.write(1, state_before)
    assert states
    values = set()
    for number, (call, state) in enumerate(states):
        place.reset(state)
        values.add(place.read())
        assert values <= {place.old, place.new}, f"a mixture after a kill at {call}"
        place.check_that_all_works_again(number)
    assert place.old in values


@pytest.mark.parametrize(  # a disk that stays full, for one, fails all calls of a kind
    "how", ["once", pytest.param("for good", marks=pytest.mark.full), "its kind for good"]
)
@pytest.mark.parametrize("writer", cases(WRITERS))
def test_an_error_leaves_the_old(writer, how, worker, root, is_full):
    place = Place(worker, root, writer)
    for point in points(place, how, is_full):
        place.reset()
        failing = Failing(point, how)
        result = place.try_write(failing)
        where = f"{how} at {place.calls[point]}: {result}"
        assert result.get("clear", True), where
        found = place.try_read(failing)  # the disk is still full, or broken
        assert found.get("value") in (place.old, place.new, None), f"a mixture, {where}"
        assert found.get("clear", True), f"{found}, {where}"
        assert place.read() == (place.old if "error" in result else place.new), where
        place.check_that_all_works_again(point)
