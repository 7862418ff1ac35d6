"""The machine's own limits, measured between the peers' turns."""

import os
import time

from .peers.machine import MATMULS

# Pools that spin at their barriers suffer most when they do not get all their cores: what such a
# machine measures is unjust to them.
_BUSY_CORES = 0.15
_LOOK_SECONDS = 0.5


class MatmulPeak:
    """The fastest large float32 matmul of any installed library.

    Args:
        worker: Of "machine".
        turn_seconds: Length of a turn.
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
        """Seconds of `flops` operations."""
        return self._worker.turn(self._key, self._turn_seconds)


class Copy:
    """Copying as many bytes as an op reads and writes, from one buffer to another."""

    def __init__(self, worker, bytes_moved: int, turn_seconds: float):
        self._worker = worker
        self._turn_seconds = turn_seconds
        self._key = worker.make("copy", bytes_moved=bytes_moved)
        worker.warm_up(self._key, 3)

    def turn(self) -> float:
        """Seconds of one copy."""
        return self._worker.turn(self._key, self._turn_seconds)

    def close(self) -> None:
        self._worker.drop(self._key)


def busy_note() -> str:
    """For a table's title: that other programs were computing while all workers rested, if so."""
    before = _busy_seconds()
    time.sleep(_LOOK_SECONDS)
    cores = (_busy_seconds() - before) / _LOOK_SECONDS
    if cores < _BUSY_CORES:
        return ""
    return f"; UNRELIABLE: other programs kept {cores:.1f} cores busy"


def _busy_seconds() -> float:
    """What all cores have worked since the start; 0 where the system does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, soft_irq, steal = map(int, file.readline().split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
