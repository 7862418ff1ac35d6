"""A tool as a user runs it: in a process of its own."""

import subprocess
import sys

from tests.conftest import REPOSITORY


def run(tool, *flags) -> subprocess.CompletedProcess:
    """`python tools/TOOL.py FLAGS` in the repository, with what it printed."""
    return subprocess.run(
        [sys.executable, f"tools/{tool}.py", *map(str, flags)],
        cwd=REPOSITORY, capture_output=True, text=True,
    )
