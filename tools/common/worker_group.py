"""Starts the processes of the workers of one machine, collects their output and ends them."""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from bert_tf.base.supervision import HEARTBEAT_VARIABLE
from bert_tf.errors import UserError, user_error

POLL_SECONDS = 0.1
LONGEST_LINE = 1 << 16  # bytes; a longer line is written in parts
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # None where the system is not Linux


def free_addresses(count: int) -> list[str]:
    """Returns `count` addresses of this machine whose ports are not in use."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [f"localhost:{each.getsockname()[1]}" for each in sockets]


def require_free_ports(addresses: list[str]) -> None:
    """Raises `UserError` if the port of one of this machine's `addresses` is in use."""
    for address in addresses:
        with socket.socket() as each:
            # A port whose last connections are being closed can be used again.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                each.bind(("", int(address.rpartition(":")[2])))
            except OSError as error:
                raise UserError(
                    f"--hosts: the port of {address}, a worker of this machine, must be free. "
                    f"Received: {error.strerror}."
                ) from None


class Output:
    """Where the lines of a worker go: to stdout with a prefix, or into a file of `log_dir`.

    A full disk or a closed stdout must not end a training run: the output is dropped.
    """

    def __init__(self, index: int, log_dir: str | None):
        self._prefix = b"" if log_dir else b"[worker %d] " % index
        self._path = log_dir and os.path.join(log_dir, f"worker-{index}.log")
        self._rest = b""
        self._is_lost = False

    def write(self, data: bytes) -> None:
        """Writes the complete lines, and keeps the rest until `data` completes it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._put(b"".join(self._prefix + line + b"\n" for line in lines))

    def close(self) -> None:
        """Writes an incomplete last line."""
        if self._rest:
            self.write(b"\n")

    def _put(self, text):
        if not text:
            return
        try:
            if self._path:
                with open(self._path, "ab") as file:
                    file.write(text)
            else:
                while text:  # a signal, such as Ctrl-C, may end a write early
                    text = text[os.write(sys.stdout.fileno(), text) :]
            self._is_lost = False
        except OSError as error:
            if not self._is_lost:
                place = self._path or "stdout"
                report(f"{place} cannot be written ({error.strerror}): output is lost")
            self._is_lost = True


def report(message: str) -> None:
    """Prints a line of the launcher itself."""
    with contextlib.suppress(OSError):  # a closed stderr must not end the run
        print(f"launch_workers: {message}", file=sys.stderr, flush=True)


@dataclasses.dataclass(eq=False)
class Worker:
    """A running worker."""

    index: int
    process: subprocess.Popen
    output: Output
    heartbeat: pathlib.Path
    seen_beat: int
    beat_at: float  # when the clock first saw this beat; at first the start
    has_beaten: bool = False


class WorkerGroup:
    """The running workers of this machine. Use it in `with`: none outlives the block.

    Args:
        command: The command line of a worker.
        addresses: "host:port" of all workers of the run.
        indices: The indices of this machine's workers in `addresses`.
        log_dir: The folder of `worker-<index>.log`, or None for stdout.
        clock: Returns seconds.
    """

    def __init__(
        self,
        command: list[str],
        addresses: list[str],
        indices: range,
        log_dir: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._command, self._addresses, self._indices = command, addresses, indices
        self._log_dir, self._clock = log_dir, clock
        self._running = []
        self._selector = selectors.DefaultSelector()
        self._folder = tempfile.TemporaryDirectory(prefix="bert_tf-heartbeats-")

    def __enter__(self):
        try:
            for index in self._indices:
                self._running.append(self._start(index))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        while self.is_running():
            self.ended()
        self._selector.close()
        self._folder.cleanup()

    def is_running(self) -> bool:
        """Returns whether a worker is left."""
        return bool(self._running)

    def terminate(self) -> None:
        """Asks all workers to stop, by SIGTERM."""
        for worker in self._running:
            worker.process.terminate()

    def kill(self) -> None:
        """Kills all workers and the processes that they have started."""
        for worker in self._running:
            _kill_group(worker)

    def ended(self) -> list[tuple[int, int]]:
        """Waits a moment for workers to end, and passes on their output.

        Returns:
            Pairs (index, status) of workers that have ended, in this order. The status of one that
            was killed is -9, as in `subprocess`.
        """
        for key, _ in self._selector.select(POLL_SECONDS):
            self._read(key.data)
        found = []
        for worker in list(self._running):
            status = worker.process.poll()
            if status is not None:
                _kill_group(worker)  # what it has started, which may hold the pipe open
                self._read(worker, until_end=True)
                worker.output.close()
                self._running.remove(worker)
                found.append((worker.index, status))
        return found

    def longest_silence(self) -> tuple[int, float]:
        """Returns the worker without a heartbeat for the longest time, and these seconds.

        If no worker has ever beaten, the program has no heartbeat, and the seconds are 0.
        """
        now = self._clock()
        for worker in self._running:
            try:
                beat = os.stat(worker.heartbeat).st_mtime_ns
            except FileNotFoundError:  # removed as an old file: the program has no heartbeat
                continue
            if beat != worker.seen_beat:
                worker.seen_beat, worker.beat_at, worker.has_beaten = beat, now, True
        if not any(worker.has_beaten for worker in self._running):
            return -1, 0.0
        worker = min(self._running, key=lambda worker: worker.beat_at)
        return worker.index, now - worker.beat_at

    def _start(self, index):
        heartbeat = pathlib.Path(self._folder.name, str(index))
        heartbeat.touch()
        os.utime(heartbeat, (0, 0))  # any beat differs from it
        cluster = {"worker": self._addresses}
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps(
                {"cluster": cluster, "task": {"type": "worker", "index": index}}
            ),
            HEARTBEAT_VARIABLE: str(heartbeat),
            "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
        }
        output = Output(index, self._log_dir)
        try:
            process = subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the launcher, which asks them to stop
                preexec_fn=_die_with_launcher,  # noqa: PLW1509  the launcher has one thread
            )
        except OSError as error:
            received = f"{self._command[0]} ({error.strerror})."
            raise user_error("The program after `--`", "be one that can run", received) from None
        os.set_blocking(process.stdout.fileno(), False)
        worker = Worker(index, process, output, heartbeat, 0, self._clock())
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        report(f"worker {index} is process {process.pid} at {self._addresses[index]}")
        return worker

    def _read(self, worker, until_end=False):
        stream = worker.process.stdout
        while not stream.closed:
            data = stream.read(LONGEST_LINE)
            if data:
                worker.output.write(data)
            elif data == b"":  # the end: the process has ended, or is about to
                self._selector.unregister(stream)
                stream.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(POLL_SECONDS)
            if not until_end or not data:
                return


def _kill_group(worker):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)


def _die_with_launcher():
    """Makes a new worker end when the launcher is killed, so that no two groups run at once."""
    if _prctl is not None:
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
