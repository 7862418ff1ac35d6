"""The instruction sets of this machine, each of which BERT_TF_ISA chooses for the kernels.

`python -m tests.instruction_sets` prints those that are not the default, in one line.
"""

import platform

from configure import X86_64_SETS, processor_flags

# What a name leaves out (VNNI, BF16) only the default has, and NEON's `none` only an ARM processor.
_MORE = {"avx2": {"avx_vnni"}, "avx512": {"avx512_vnni", "avx512_bf16"}}


def other_instruction_sets(cpu_info: str | None = None, machine: str | None = None) -> list[str]:
    """Returns what BERT_TF_ISA can be set to on a machine so that other instructions run.

    Args:
        cpu_info: The text of /proc/cpuinfo. None: that of this machine.
        machine: As `platform.machine()`. None: this machine's.

    Returns:
        The names, the best one last. The default of the machine is not among them.
    """
    if (machine or platform.machine()) != "x86_64":
        return ["portable"]
    flags = processor_flags(cpu_info)
    names = [name for name, needed in X86_64_SETS.items() if needed <= flags]
    has_more = flags & _MORE.get(names[-1], set())
    return names if has_more else names[:-1]


if __name__ == "__main__":
    print(*other_instruction_sets())
