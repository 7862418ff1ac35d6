"""The instruction sets of this machine, each of which BERT_TF_ISA chooses for the kernels.

`python -m tests.instruction_sets` prints those that are not the default, in one line.
"""

import pathlib
import platform

# Every set with the flags of /proc/cpuinfo that it needs, as custom_ops/kernels/base/isa.cc asks
# for them. What `avx512` leaves out of AVX-512 (VNNI, BF16) only the default has, and NEON's `none`
# only an ARM processor.
_X86_64 = {
    "portable": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
_MORE_THAN_AVX512 = {"avx512_vnni", "avx512_bf16"}


def other_instruction_sets(cpu_info: str | None = None, machine: str | None = None) -> list[str]:
    """Returns what BERT_TF_ISA can be set to on a machine so that other instructions run.

    Args:
        cpu_info: The text of /proc/cpuinfo. None: that of this machine.
        machine: As `platform.machine()`. None: this machine's.

    Returns:
        The names, the best one last. The default of the machine is not among them.
    """
    if cpu_info is None:
        cpu_info = pathlib.Path("/proc/cpuinfo").read_text()
    if (machine or platform.machine()) != "x86_64":
        return ["portable"]
    line = next((line for line in cpu_info.splitlines() if line.startswith("flags")), ":")
    flags = set(line.split(":")[1].split())
    names = [name for name, needed in _X86_64.items() if needed <= flags]
    has_more = names[-1] == "avx512" and flags & _MORE_THAN_AVX512
    return names if has_more else names[:-1]


if __name__ == "__main__":
    print(*other_instruction_sets())
