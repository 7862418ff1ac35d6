"""Measures the limits of the machine in the same rounds as the peers."""

import os
import time

from .peers.machine import MATMULS

# Other programs slow down thread pools that spin at barriers more than the others, so the
# comparison would not be fair.
_BUSY_CORES = 0.15
_LOOK_SECONDS = 0.5


class MatmulPeak:
    """Measures the fastest large float32 matmul of all installed libraries.

    Args:
        worker: The worker of "machine".
        turn_seconds: Length of one measurement.
    """

    def __init__(self, worker, turn_seconds: float):
        self._worker = worker
        self._turn_seconds = turn_seconds
        best = None
        for shape in MATMULS:
            for library in worker.variants("matmul"):
                key = worker.make("matmul", shape=shape, variant=library)
                flops = float(worker.outputs(key)["flops"])
                rate = flops / worker.warm_up(key, 3)
                if best is None or rate > best[0]:
                    if best is not None:
                        worker.drop(best[1])
                    best = (rate, key, flops, f"{library}, {'x'.join(map(str, shape))}")
                else:
                    worker.drop(key)
        _, self._key, self.flops, self.label = best
        print(f"  matmul peak: {best[0] / 1e9:.0f} GFLOP/s ({self.label})", flush=True)

    def turn(self) -> float:
        """Returns the seconds for `flops` operations."""
        return self._worker.turn(self._key, self._turn_seconds)


class Copy:
    """Measures a copy that moves as many bytes as an op reads and writes.

    Args:
        worker: The worker of "machine".
        bytes_moved: Bytes read and written.
        turn_seconds: Length of one measurement.
    """

    def __init__(self, worker, bytes_moved: int, turn_seconds: float):
        self._worker = worker
        self._turn_seconds = turn_seconds
        self._key = worker.make("copy", bytes_moved=bytes_moved)
        worker.warm_up(self._key, 3)

    def turn(self) -> float:
        """Returns the seconds for one copy."""
        return self._worker.turn(self._key, self._turn_seconds)

    def close(self) -> None:
        self._worker.drop(self._key)


def busy_note() -> str:
    """Returns a warning for a table's title if other programs use the cores, or ""."""
    before = _busy_seconds()
    time.sleep(_LOOK_SECONDS)
    cores = (_busy_seconds() - before) / _LOOK_SECONDS
    if cores < _BUSY_CORES:
        return ""
    return f"; UNRELIABLE: other programs kept {cores:.1f} cores busy"


def _busy_seconds() -> float:
    """Returns the busy seconds of all cores since the start; 0 if the system does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, soft_irq, steal = map(int, file.readline().split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
