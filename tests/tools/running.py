"""A tool as a user runs it: in a process of its own."""

import pathlib
import runpy
import subprocess
import sys
import tempfile
import types

from tests.conftest import REPOSITORY
from tests.training import processes


def run(tool, *flags) -> subprocess.CompletedProcess:
    """`python tools/TOOL.py FLAGS` in the repository, with what it printed."""
    return subprocess.run(
        [sys.executable, f"tools/{tool}.py", *map(str, flags)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )


def fork(tool, *flags) -> types.SimpleNamespace:
    """As `run`, without importing TensorFlow again: `returncode`, and in `text` all it printed."""
    with tempfile.TemporaryDirectory() as directory:
        process = processes.start(
            run_main, pathlib.Path(directory) / "text", tool=tool, flags=[*map(str, flags)]
        )
        return types.SimpleNamespace(returncode=process.wait(timeout=600), text=process.text())


def run_main(tool, flags):
    """In a process of its own: the program with these flags."""
    sys.argv = [f"{tool}.py", *flags]
    sys.path.insert(0, str(REPOSITORY / "tools"))  # as `python tools/TOOL.py` does
    runpy.run_path(str(REPOSITORY / "tools" / f"{tool}.py"), run_name="__main__")
