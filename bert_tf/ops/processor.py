"""Features of the processor that decide which precision is faster."""

import functools
import pathlib

_CPU_INFO = pathlib.Path("/proc/cpuinfo")


@functools.cache
def has_bfloat16_products() -> bool:
    """Returns whether the processor has AVX512-BF16, which `fused_dense` uses.

    The result is False if the features of the processor are unknown.
    """
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    return "avx512_bf16" in flags
