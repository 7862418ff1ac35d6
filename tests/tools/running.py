"""A tool as a user runs it, in a process of its own that need not import TensorFlow again.

`run` and `start` fork from `tests/training/processes.py`; `run_program` is the real start, of which
every tool has one (`test_every_tool.py`).
"""

import importlib.util
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import tempfile

from absl import app

from bert_tf.tools.common import programs
from tests.conftest import REPOSITORY
from tests.training import processes

TOOLS = sorted(programs.NAMES)
# The programs that no wheel contains, as `python -m` starts them.
CHECKOUT_PROGRAMS = sorted(
    f"{folder}.{path.stem}".removesuffix(".__main__")
    for folder in ("benchmarks", "research")
    for path in (REPOSITORY / folder).glob("*.py")
    if "tool.run(" in path.read_text(encoding="utf-8")
)


def module_of(program: str) -> str:
    """The module of a program of tools/; other programs have the names of their modules."""
    return f"bert_tf.tools.{program}" if program in TOOLS else program


def source_of(program: str) -> pathlib.Path:
    """The file of a program; of a package, its `__main__.py`."""
    path = pathlib.Path(importlib.util.find_spec(module_of(program)).origin)
    return path.with_stem("__main__") if path.stem == "__init__" else path


def results_in(path: pathlib.Path) -> dict[str, str]:
    """Returns the values of a results file, lines of `name = value`, as strings by name."""
    return dict(line.split(" = ") for line in path.read_text().splitlines())


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def run(
    tool, *flags, environment=None, prepare=None, directory=REPOSITORY, timeout=120.0
) -> subprocess.CompletedProcess:
    """`python -m bert_tf.tools.TOOL FLAGS`, with what it printed.

    Args:
        tool: The name of a program of tools/, or of a module, such as "research.demo".
        *flags: Its arguments.
        environment: Variables that it has beyond this process's.
        prepare: An importable function that is called in the process before the program.
        directory: Where it runs.
        timeout: Seconds after which it is killed and the test fails.
    """
    with tempfile.TemporaryDirectory() as printed:
        output, errors = pathlib.Path(printed, "stdout"), pathlib.Path(printed, "stderr")
        options = {"environment": environment, "prepare": prepare, "directory": directory}
        process = start(tool, *flags, output=output, errors=errors, **options)
        returncode = process.wait(timeout)
        return subprocess.CompletedProcess(
            [tool, *flags], returncode, *(path.read_text("utf-8") for path in (output, errors))
        )


def start(
    tool,
    *flags,
    output,
    errors=None,
    environment=None,
    prepare=None,
    directory=REPOSITORY,
    is_real_start=False,
) -> processes.Process:
    """As `run`, without waiting. The process leads a process group, as a shell's foreground job.

    Args:
        tool: As for `run`.
        *flags: Its arguments.
        output: The file that its output is appended to.
        errors: The file of what it writes to stderr; None: `output` too.
        environment: Variables that it has beyond this process's.
        prepare: An importable function that is called in the process before the program.
        directory: Where it runs.
        is_real_start: Whether an interpreter of its own imports what the program needs; `prepare`
            must be None then, as nothing could call it there.
    """
    if is_real_start and prepare is not None:
        raise ValueError(
            f"`prepare` must be None with `is_real_start=True`. Received: prepare={prepare!r}"
        )
    options = {"flags": [*map(str, flags)], "prepare": prepare, "directory": str(directory)}
    if is_real_start:
        options["prepare"] = _become_an_interpreter
    return processes.start(run_main, output, environment, errors, tool=tool, **options)


def run_program(program, *arguments, **options) -> subprocess.CompletedProcess:
    """A real start: `python PROGRAM ARGUMENTS` in the repository, with what it printed.

    Args:
        program: A file, or `-c` and then code.
        *arguments: Of the program.
        **options: Of `subprocess.run`.
    """
    options = {"cwd": REPOSITORY, "capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run([sys.executable, program, *map(str, arguments)], **options)


def _become_an_interpreter():
    """Replaces the process by a new interpreter with the same command line."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def run_main(tool, flags, prepare, directory):
    """In a process of its own: the program with these flags, as the interpreter runs it."""
    os.setpgid(0, 0)
    app._init_callbacks.clear()  # TensorFlow's, which the tool has not imported yet
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    os.chdir(directory)
    module = module_of(tool)
    sys.argv = [os.path.relpath(source_of(tool)), *flags]
    try:
        if prepare is not None:
            prepare()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())  # as the interpreter does; a tool installs its own
        sys.exit(1)
