"""Which instruction sets the tests run for, besides the default one."""

import pytest

from tests.instruction_sets import other_instruction_sets

ALL_OF_AVX512 = "avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni"


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("sse4_2", []),
        ("avx2", []),  # without FMA
        ("avx2 fma avx512f", ["portable"]),
        (ALL_OF_AVX512.removesuffix(" avx512_vnni"), ["portable", "avx2"]),
        (ALL_OF_AVX512, ["portable", "avx2", "avx512"]),
    ],
)
def test_other_instruction_sets(flags, expected):
    cpu_info = f"processor : 0\nflags\t\t: fpu {flags}\n\nprocessor : 1\nflags : fpu {flags}\n"
    assert other_instruction_sets(cpu_info, "x86_64") == expected


def test_arm():
    assert other_instruction_sets("", "aarch64") == ["portable"]
