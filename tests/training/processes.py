"""Real processes for the tests that kill: TensorFlow is imported once and forked.

`start` runs a function in a process of its own, with its output in a file. The processes come from
a fork server, which has imported TensorFlow but not started it.
"""

import multiprocessing
import os
import pathlib
import sys
import traceback

PRELOADED = ["tensorflow", "keras", "bert_tf", "bert_tf.training", "tests.training.tiny_run"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOADED)


class Process:
    """A running function. Attributes: `pid`, `output` (the path of its output)."""

    def __init__(self, function, output, arguments, environment):
        self.output = pathlib.Path(output)
        self._process = _context.Process(
            target=_run, args=(function, str(output), arguments, environment)
        )
        self._process.start()
        self.pid = self._process.pid

    def wait(self, timeout: float = 120.0) -> int:
        """The exit status; -9 for a killed one."""
        self._process.join(timeout)
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
        return self.output.read_text() if self.output.exists() else ""


def start(function, output, environment=None, **arguments) -> Process:
    """Runs `function(**arguments)`; `function` must be importable."""
    return Process(function, output, arguments, environment or {})


def _run(function, output, arguments, environment):
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(environment)
    try:
        function(**arguments)
    except Exception:
        traceback.print_exc()
        os._exit(1)
