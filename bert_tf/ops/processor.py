"""What the processor can do that decides which implementation is faster."""

import functools
import pathlib

# Linux's names for AVX512-BF16 and AMX-BF16.
_BFLOAT16_MATMUL_FLAGS = {"avx512_bf16", "amx_bf16"}
_CPU_INFO = pathlib.Path("/proc/cpuinfo")


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16 matmuls, which TensorFlow then uses.

    `fused_dense` computes in float32 and is slower than those. False where it cannot be found out.
    """
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    return not _BFLOAT16_MATMUL_FLAGS.isdisjoint(flags)
