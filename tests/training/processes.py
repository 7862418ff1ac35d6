"""Real processes without a cold start: TensorFlow is imported once and forked.

`start` runs a function in a process of its own, with its output in a file. The processes come from
a fork server, which has imported all that they need (`tests/training/preloaded.py`) but not started
TensorFlow: it has one thread. Every process of pytest-xdist has a server of its own.
"""

import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import pathlib
import sys
import time
import traceback
import weakref

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.training.preloaded"])
_started = weakref.WeakSet()

PATIENCE = 120.0  # seconds before a test gives up on something that always comes


class Process:
    """A running function. Attributes: `pid`, `output` (the path of its output)."""

    def __init__(self, function, output, errors, arguments, environment):
        self.output = pathlib.Path(output)
        self._process = _context.Process(
            target=_run, args=(function, str(output), str(errors), arguments, environment)
        )
        self._process.start()
        self.pid = self._process.pid
        _started.add(self._process)

    def wait(self, timeout: float | None = PATIENCE) -> int:
        """The exit status; -9 for a killed one. With None it waits for as long as it takes."""
        try:
            self._process.join(timeout)
        except BaseException:  # Ctrl-C in pytest, say: the process does not outlive it
            self._process.kill()
            raise
        if self._process.exitcode is None:
            self._process.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.text()}")
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def text(self) -> str:
        """What it has written so far; the last character may be half written."""
        if not self.output.exists():
            return ""
        return self.output.read_text(encoding="utf-8", errors="replace")


def start(function, output, environment=None, errors=None, **arguments) -> Process:
    """Runs `function(**arguments)`.

    Args:
        function: Must be importable.
        output: The file that its output is appended to.
        environment: Variables that the process has beyond this one's.
        errors: The file of what it writes to stderr; None: `output` too.
        **arguments: Of the function.
    """
    environment = {**os.environ, **(environment or {})}
    return Process(function, output, errors or output, arguments, environment)


def wait_for_success(*started: Process, timeout: float = PATIENCE) -> None:
    """Waits until all have ended well. As soon as one fails, all are killed and all outputs shown.

    Args:
        *started: Processes that may wait for each other.
        timeout: Seconds after which they are killed and the test fails.

    Raises:
        AssertionError: If one fails, or still runs after `timeout`.
    """
    end, statuses = time.monotonic() + timeout, []
    running = {each._process.sentinel: each for each in started}
    try:
        while running:
            ended = multiprocessing.connection.wait(running, max(0.0, end - time.monotonic()))
            statuses = [running.pop(sentinel).wait() for sentinel in ended]
            if not ended or any(statuses):
                break
    finally:
        for each in running.values():
            each.kill()
            each.wait()
    reports = []
    for number, each in enumerate(started):
        how = "was killed here" if each in running.values() else f"ended with status {each.wait()}"
        reports.append(f"Process {number} {how}:\n{each.text()}")
    assert not running and not any(statuses), "\n".join(reports)


class Results:
    """The results of a function in another process by name, each as soon as it is computed.

    Use it in `with`. A name whose work failed raises an `AssertionError` with the traceback.

    Args:
        function: An importable function. It calls `send_results` with its arguments `names` and
            `results`, the end of a pipe.
        output: As in `start`.
        names: The names of the results.
    """

    def __init__(self, function, output, names: list[str]):
        self._receiver, sender = multiprocessing.Pipe(duplex=False)
        self._process = start(function, output, names=names, results=sender)
        sender.close()  # so that reading ends where the process does
        self._found = {}

    def __getitem__(self, name: str):
        while name not in self._found:
            if not self._receiver.poll(PATIENCE):
                self._process.kill()  # the names after this one fail at once
                raise AssertionError(f"nothing in {PATIENCE:g} s:\n{self._process.text()}")
            try:
                found, *result = self._receiver.recv()
            except (EOFError, OSError):  # at the end, or within a message
                status = self._process.wait()
                message = f"ended with status {status} before {name!r}:\n{self._process.text()}"
                raise AssertionError(message) from None
            self._found[found] = result
        value, error = self._found[name]
        assert error is None, error
        return value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._receiver.close()


def send_results(results, names: list[str], find) -> None:
    """Sends `find(name)` for each name, or its traceback.

    Args:
        results: The end of the pipe of `Results`.
        names: The names.
        find: A function of a name.
    """
    for name in names:
        value = error = None
        try:
            value = find(name)
        except KeyboardInterrupt:
            raise
        except BaseException:  # that of `pytest.fail` is no Exception
            error = traceback.format_exc()
        results.send((name, value, error))


def parameters(request, name: str) -> list:
    """The values of a parameter in the tests of a fixture's module that are to run.

    Args:
        request: That of the fixture.
        name: Of the parameter.
    """
    return [
        item.callspec.params[name]
        for item in request.session.items
        if item.parent is request.node and name in item.fixturenames
    ]


def start_server() -> None:
    """Begins to import what processes need, so that the first of them waits less."""
    multiprocessing.forkserver.ensure_running()


def kill_all() -> None:
    """Kills what still runs: a test that failed may not have waited."""
    for process in _started:
        if process.is_alive():
            process.kill()


def _run(function, output, errors, arguments, environment):
    for number, path in ((1, output), (2, errors)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    os.environ.clear()  # the server has the variables of the moment when it started
    os.environ.update(environment)
    try:
        function(**arguments)
    except Exception:
        traceback.print_exc()
        os._exit(1)
