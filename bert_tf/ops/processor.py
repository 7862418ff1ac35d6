"""Features of the processor that decide which implementation is faster."""

import functools
import pathlib

# Linux's names for AVX512-BF16 and AMX-BF16.
_BFLOAT16_MATMUL_FLAGS = {"avx512_bf16", "amx_bf16"}
_CPU_INFO = pathlib.Path("/proc/cpuinfo")


@functools.cache
def multiplies_bfloat16() -> bool:
    """Returns whether the processor has instructions for bfloat16 matmuls, which TensorFlow uses.

    `fused_dense` computes in float32 and is slower than these. The result is False if the features
    of the processor are unknown.
    """
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    return not _BFLOAT16_MATMUL_FLAGS.isdisjoint(flags)
