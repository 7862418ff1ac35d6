"""The CUDA kernels compile where nvcc is, and what must be fast spills no register.

What they compute is tested without a GPU by //custom_ops/kernels:cuda_kernels_test, and with one by
tools/check_cuda_kernels.py.
"""

import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools"))

import check_cuda_kernels as cuda  # noqa: E402

_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\S+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@pytest.mark.parametrize("name", cuda.SOURCES)
def test_compiles_without_spills(name, tmp_path):
    nvcc = cuda.find_nvcc()
    if nvcc is None:
        pytest.skip("needs nvcc in CUDA_HOME or on PATH")
    result = subprocess.run(
        [nvcc, *cuda.NVCC_FLAGS, f"-I{REPOSITORY}", "-arch=sm_90", "-Xptxas", "-v", "-Werror",
         "all-warnings", "-c", str(cuda.source_path(name)), "-o", str(tmp_path / "kernels.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    kernels = list(_ENTRY.finditer(result.stderr))
    assert len(kernels) >= 12, result.stderr[-4000:]  # all types
    spilling = [
        f"{kernel['name']}: {kernel['stores']} bytes"
        for kernel in kernels
        if kernel["stores"] != "0" or kernel["loads"] != "0"
    ]
    assert not spilling


def test_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["check_cuda_kernels.py"])
    assert cuda.main() == 2
    assert "lacks nvcc" in capsys.readouterr().err
