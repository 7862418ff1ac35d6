"""The environment of transformers 4 with TensorFlow, which `make transformers4` makes."""

import pathlib
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


def installed_transformers4() -> pathlib.Path:
    """Returns the environment's interpreter. Where pip cannot install it, the test is skipped."""
    made = subprocess.run(
        ["make", "transformers4", f"PYTHON={sys.executable}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"needs transformers 4.57 with TensorFlow: {made.stderr[-500:]}")
    return REPOSITORY / ".cache" / "venvs" / "transformers4" / "bin" / "python"
