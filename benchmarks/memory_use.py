"""The resident memory of processes, on Linux."""

import contextlib
import ctypes
import gc
import os

_MIB = 1024.0  # in KiB, the unit of /proc
CURRENT = "VmRSS"
PEAK = "VmHWM"  # since the start of the process or the last `reset_peak`


def resident_mib(key: str) -> float:
    """Returns the resident memory in MiB: `CURRENT` or `PEAK`."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / _MIB
    raise OSError(f"/proc/self/status must have {key}, as on Linux. Received: none")


def reset_peak() -> None:
    """Sets the peak to the current resident memory."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # man 5 proc: resets the peak resident set size


def give_back() -> None:
    """Returns unused memory to the system, which many workers share."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def tree_mib(pid: int) -> float:
    """Returns the memory of a process and of all below it in MiB, shared pages counted once."""
    total, waiting = 0.0, [pid]
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{current}/task"):
                with open(f"/proc/{current}/task/{thread}/children", encoding="ascii") as file:
                    waiting += map(int, file.read().split())
            with open(f"/proc/{current}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return total / _MIB
