"""Which instruction set is built for a machine, and for which others the tests run."""

import pytest

from configure import best_instruction_set
from tests.instruction_sets import other_instruction_sets

ALL_OF_AVX512 = "avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni"


@pytest.mark.parametrize(
    "flags, best, others",
    [
        ("sse4_2", "portable", []),
        ("avx2", "portable", []),  # without FMA
        ("avx2 fma avx512f", "avx2", ["portable"]),
        ("avx2 fma avx_vnni", "avx2", ["portable", "avx2"]),
        (ALL_OF_AVX512.removesuffix(" avx512_vnni"), "avx512", ["portable", "avx2"]),
        (ALL_OF_AVX512, "avx512", ["portable", "avx2", "avx512"]),
    ],
)
def test_instruction_sets(flags, best, others):
    cpu_info = f"processor : 0\nflags\t\t: fpu {flags}\n\nprocessor : 1\nflags : fpu {flags}\n"
    assert best_instruction_set(cpu_info, "x86_64") == best
    assert other_instruction_sets(cpu_info, "x86_64") == others


def test_arm():
    assert best_instruction_set("", "aarch64") == "neon"
    assert other_instruction_sets("", "aarch64") == ["portable"]
