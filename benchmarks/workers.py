"""Starts the worker processes and talks to them, in the parent process."""

import contextlib
import itertools
import os
import pickle
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError

from .peers import BASELINE, PEERS
from .peers.base import Setup
from .timing import calls_in_a_turn

# A thread pool may spin for a while after its work (Intel's OpenMP: 200 ms), which would slow down
# the next peer. So a measurement ends only when the process is idle.
_REST_SECONDS = 0.05
_LONGEST_REST_SECONDS = 3.0

_CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LOG_LINES = 25

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",  # Hugging Face's tokenizers
)

# Keeps large buffers instead of returning them to the kernel after every use (man 3 mallopt).
_TUNED_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class PeerFailed(Exception):
    """A peer failed, so the table is invalid."""


def scratch_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="bert_tf_benchmark_", ignore_cleanup_errors=True)


class Worker:
    """One peer of `PEERS` in its own process.

    With `tuned_malloc` glibc keeps freed memory. `environment` has more environment variables. The
    peer `BASELINE` imports the bert_tf of the checkout in the directory `baseline`. `interpreters`
    has the Python interpreters of peers that are in other environments.
    """

    def __init__(
        self,
        name,
        model_directory,
        threads,
        tuned_malloc=False,
        environment=None,
        baseline=None,
        interpreters=None,
    ):
        self.name = name
        self._scratch = scratch_folder()
        if name == BASELINE:
            package = os.path.join(baseline, "bert_tf")
            os.symlink(package, os.path.join(self._scratch.name, "bert_tf"))
        self._log_path = os.path.join(self._scratch.name, f"{name}.log")
        self._keys = itertools.count()
        # The seconds of one call of each task, from its warm-up.
        self._expected = {}
        paths = [_CHECKOUT, os.environ.get("PYTHONPATH", "")]
        variables = {
            **os.environ,
            **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
            "PYTHONPATH": os.pathsep.join(paths),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "true",
            **(_TUNED_MALLOC if tuned_malloc else {}),
            **PEERS[name].environment,
            **(environment or {}),
        }
        with open(self._log_path, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [(interpreters or {}).get(name, sys.executable), "-m", f"{__package__}.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=variables,
                cwd=self._scratch.name,  # `python -m` imports from there first
            )
        setup = Setup(model_directory, threads, self._scratch.name)
        try:
            self.version, self.imported_mib = self.ask("hello", name=name, setup=setup)
        except PeerFailed:
            self.close()
            raise

    def variants(self, job, bucket=None, is_ragged=False) -> tuple[str, ...]:
        return self.ask("variants", job=job, bucket=bucket, is_ragged=is_ragged)

    def make(self, job, **arguments) -> int:
        """Prepares a task with the arguments of the peer's job and returns its key."""
        key = next(self._keys)
        self.ask("make", key=key, job=job, arguments=arguments)
        return key

    def outputs(self, key) -> dict[str, np.ndarray]:
        return self.ask("outputs", key=key)

    def warm_up(self, key, calls) -> float:
        """Makes a first call, which compiles, and returns the shortest time of further calls."""
        seconds = self.time(key, 1 + calls)
        self._expected[key] = min(seconds[1:])
        return self._expected[key]

    def turn(self, key, turn_seconds, clock="perf_counter") -> float:
        """Measures a task after its warm-up: the median of the calls in `turn_seconds`.

        A short task gets one call that is not counted first, as another process used the caches.
        `clock` is a function of the module `time`.
        """
        calls = calls_in_a_turn(self._expected[key], turn_seconds)
        seconds = self.time(key, calls + (calls > 1), clock)
        return statistics.median(seconds[1:] if calls > 1 else seconds)

    def time(self, key, calls, clock="perf_counter") -> list[float]:
        seconds = self.ask("time", key=key, calls=calls, clock=clock)
        self._rest()
        return seconds

    def drop(self, key) -> None:
        self.ask("drop", key=key)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process has ended already
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._scratch.cleanup()

    def ask(self, command, **arguments):
        """Calls a method of `worker.Worker` and returns its result."""
        try:
            pickle.dump((command, arguments), self._process.stdin)
            self._process.stdin.flush()
            answer, error = pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError):
            # -9 without a message in the log means that the kernel ran out of memory.
            error = f"its process ended with status {self._process.wait()}"
        if error is not None:
            with open(self._log_path, encoding="utf-8", errors="replace") as log:
                end = "".join(log.readlines()[-_LOG_LINES:])
            raise PeerFailed(f"{self.name}: {error}\nThe end of its log:\n{end}")
        return answer

    def _rest(self):
        """Waits until the process is idle."""
        deadline = time.monotonic() + _LONGEST_REST_SECONDS
        before = self._cpu_ticks()
        while time.monotonic() < deadline:
            time.sleep(_REST_SECONDS)
            now = self._cpu_ticks()
            if now == before:
                return
            before = now

    def _cpu_ticks(self):
        with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])  # utime + stime, man 5 proc


@contextlib.contextmanager
def crew(names, start, model_directory):
    """Starts a worker for each name, yields a dictionary of them, and ends them all.

    `start` is a function (name, model directory) -> `Worker`. A peer that cannot start is left out.
    """
    workers = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            try:
                worker = start(name, model_directory)
            except PeerFailed as failure:
                print(f"  {failure}")
            else:
                workers[name] = stack.enter_context(contextlib.closing(worker))
                print(f"  {name}: {worker.version}")
        yield workers


def parse_interpreters(texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Returns the interpreters of some peers of `names`, from texts such as "zentf=bin/python"."""
    result = {}
    for text in texts:
        name, _, path = text.partition("=")
        if name not in names or not os.path.isfile(path) or not os.access(path, os.X_OK):
            raise UserError(
                "--peer_python must be NAME=PATH, a peer of --peers and the Python interpreter of "
                f"its environment. Received: {text!r} for the peers {', '.join(names) or 'none'}"
            )
        result[name] = os.path.abspath(path)  # workers have other working directories
    return result


def require_installed(
    names: Sequence[str], job: str, interpreters: Mapping[str, str] | None = None
) -> None:
    """Checks that the packages of the peers for a job are installed, before any work."""
    interpreters = interpreters or {}
    missing = {}
    for name in names:
        python = interpreters.get(name)
        try:
            packages = PEERS[name].missing(job, python)
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(
                "--peer_python must be the Python interpreter of an environment. Received: "
                f"{name}={python} ({error})"
            ) from None
        if packages and (python or PEERS[name].requirements):
            raise UserError(_how_to_install(name, packages, python))
        if packages:
            missing[name] = packages
    if missing:
        install = " ".join(sorted({package for some in missing.values() for package in some}))
        raise UserError(
            f"The packages of all --peers must be installed. Received: none for "
            f"{', '.join(missing)}. `pip install {install}` (or "
            "`pip install 'bert-tf[benchmark]'`), or set fewer --peers."
        )


def _how_to_install(name, packages, python):
    """Returns the message for a peer without some packages, which is in its own environment."""
    text = (
        f"The packages of all --peers must be installed. Received: no {', '.join(packages)} for "
        f"{name} in {python or 'this environment'}. "
    )
    requirements = shlex.join(PEERS[name].requirements or packages)
    if python:
        return f"{text}`{python} -m pip install {requirements}`, or set fewer --peers."
    return (
        f"{text}`python -m venv {name}_env`, `{name}_env/bin/pip install {requirements}` and "
        f"--peer_python={name}={name}_env/bin/python, or set fewer --peers."
    )
