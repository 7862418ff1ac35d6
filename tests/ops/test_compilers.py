"""The kernels compile with the oldest compiler that a supported system brings."""

import subprocess

import pytest

from tests.conftest import REPOSITORY

NEW_IN_GCC_12 = ("__builtin_shufflevector", "__builtin_assoc_barrier")


@pytest.mark.full
def test_kernels_compile_with_gcc_11_of_ubuntu_22_04():
    # A newer GCC is used in its place: the builtins that GCC 11 lacks get names that nothing has.
    absent = [f"-D{builtin}=not_in_gcc_11" for builtin in NEW_IN_GCC_12]
    sources = sorted(REPOSITORY.glob("custom_ops/kernels/*/*_isa.cc"))
    assert len(sources) >= 7
    compiled = subprocess.run(
        ["g++", "-std=c++17", "-fsyntax-only", "-DBERT_TF_ISA=portable", *absent, f"-I{REPOSITORY}"]
        + sources,
        capture_output=True,
        text=True,
    )
    assert compiled.returncode == 0, compiled.stderr
