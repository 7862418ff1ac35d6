"""The resident memory of this process, on Linux."""

import contextlib
import ctypes
import gc

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
