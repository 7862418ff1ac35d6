"""Measures the limits of the machine in the same rounds as the peers."""

import os
import time

from .peers.machine import MATMULS

# Other programs slow down thread pools that spin at barriers more than the others, so the
# comparison would not be fair.
_BUSY_CORES = 0.15
_LOOK_SECONDS = 0.5


class Limit:
    """A task of the worker "machine": `amount` operations or bytes, and how fast they are."""

    def __init__(self, machine, turn_seconds: float, job: str, calls: int = 1, **arguments):
        self._machine = machine
        self._turn_seconds = turn_seconds
        self._key = machine.make(job, **arguments)
        self.amount = float(machine.outputs(self._key)["amount"])
        self.rate = self.amount / machine.warm_up(self._key, calls)

    def turn(self) -> float:
        """Returns the seconds for `amount`."""
        return self._machine.turn(self._key, self._turn_seconds)

    def close(self) -> None:
        self._machine.drop(self._key)


def matmul_peak(machine, turn_seconds: float) -> Limit:
    """Returns the fastest large float32 matmul of all installed libraries."""
    best, label = None, ""
    for shape in MATMULS:
        for library in machine.variants("matmul"):
            tried = Limit(machine, turn_seconds, "matmul", 3, shape=shape, variant=library)
            if best is None or tried.rate > best.rate:
                best, tried, label = tried, best, f"{library}, {'x'.join(map(str, shape))}"
            if tried is not None:
                tried.close()
    print(f"  matmul peak: {best.rate / 1e9:.0f} GFLOP/s ({label})", flush=True)
    return best


def busy_note() -> str:
    """Returns a warning for a table's title if other programs use the cores, or ""."""
    before = _busy_seconds()
    time.sleep(_LOOK_SECONDS)
    cores = (_busy_seconds() - before) / _LOOK_SECONDS
    if cores < _BUSY_CORES:
        return ""
    return f"; UNRELIABLE: other programs kept {cores:.1f} cores busy"


def _busy_seconds() -> float:
    """Returns the busy seconds of all cores since the start."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, soft_irq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
