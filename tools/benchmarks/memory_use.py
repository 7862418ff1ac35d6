"""How much memory this process holds and held at most, as Linux counts it."""

import contextlib
import ctypes
import gc

_MIB = 1024.0  # /proc counts in KiB


def current_mib() -> float:
    """Resident memory now."""
    return _status("VmRSS")


def peak_mib() -> float:
    """The most since the process began or since `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Sets the peak to what is resident now."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # man 5 proc: resets the peak resident set size


def give_back() -> None:
    """Returns what is not used any more to the system: many workers live side by side."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _status(key: str) -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / _MIB
    raise OSError(f"Expected {key} in /proc/self/status: this needs Linux.")
