"""How fast a device computes, and the time that it needs for some work.

    seconds = (matmuls + attention + passes over memory) / efficiency + overheads

The efficiency is what a whole training step reaches of the rates of its parts. It is not chosen:
`calibration.py` measures it for a CPU, `published.py` computes it from a published run otherwise.
"""

import dataclasses
from collections.abc import Mapping

from .work import PASSES, Work


@dataclasses.dataclass(frozen=True)
class Rates:
    """The rates of a device, or of a process with some threads on a CPU.

    Args:
        seconds_per_flop: Of matmuls, in the precision of the run.
        seconds_per_matmul_byte: Of reading and writing the matrices. 0 hides it in the arithmetic.
        attention_seconds_per_flop: As `seconds_per_flop`.
        attention_seconds_per_score: Of the softmax and its dropout, forward and backward.
        bytes_per_second: By kind of pass over memory, one of `PASSES`.
        seconds_per_block: What a block's forward and backward pass costs beyond the above.
        seconds_per_step: What a step costs beyond the above.
        efficiency: The share of these rates that a training step reaches, not counting overheads.
    """

    seconds_per_flop: float
    attention_seconds_per_flop: float
    bytes_per_second: Mapping[str, float]
    seconds_per_matmul_byte: float = 0.0
    attention_seconds_per_score: float = 0.0
    seconds_per_block: float = 0.0
    seconds_per_step: float = 0.0
    efficiency: float = 1.0

    @classmethod
    def of_peak(cls, flops: float, bandwidth: float, efficiency: float = 1.0) -> "Rates":
        """Returns the rates of a device with this peak in FLOP/s and bandwidth in bytes/s."""
        passes = dict.fromkeys(PASSES, bandwidth)
        return cls(1 / flops, 1 / flops, passes, efficiency=efficiency)

    def ideal_seconds(self, work: Work, number_bytes: int = 4) -> float:
        """Returns the time at the full rates, without overheads.

        Args:
            work: The work.
            number_bytes: Bytes of a number in matmuls.
        """
        seconds = sum(
            matmul.times * self.matmul_seconds(*matmul.shape, number_bytes)
            for matmul in work.matmuls
        )
        seconds += work.attention_flops * self.attention_seconds_per_flop
        seconds += work.attention_scores * self.attention_seconds_per_score
        return seconds + sum(self.pass_seconds(kind, work.bytes[kind]) for kind in work.bytes)

    def seconds(self, work: Work, number_bytes: int = 4) -> float:
        """Returns the time that a training step needs for a part of its work."""
        overhead = work.blocks * self.seconds_per_block
        return self.ideal_seconds(work, number_bytes) / self.efficiency + overhead

    def matmul_seconds(self, rows: float, depth: float, units: float, number_bytes: int) -> float:
        flops = 2 * rows * depth * units
        matrices = number_bytes * (rows * depth + depth * units + rows * units)
        return flops * self.seconds_per_flop + matrices * self.seconds_per_matmul_byte

    def pass_seconds(self, kind: str, num_bytes: float) -> float:
        """Returns the time of passes over memory of a kind, at the full rate."""
        return num_bytes / self.bytes_per_second[kind]
