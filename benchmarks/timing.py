"""Interleaved timing (A B C A B C ...), medians, and ratios with their spread.

The speed of a shared or throttled machine changes by more than the differences to be measured.
Therefore each round measures every contestant once, and ratios are computed within a round.
"""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest value."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Returns the spread of one or more values."""
        return cls(min(values), statistics.median(values), max(values))


def interleave(
    contestants: Mapping[str, Callable[[], float]],
    rounds: int,
    progress: Callable[[Sequence], Sequence] = iter,
) -> dict[str, list[float]]:
    """Measures every contestant once per round, in an order that is rotated by one in each round.

    A contestant is a function that makes one measurement and returns it in seconds. `progress`
    wraps the sequence of measurements, such as `tqdm.tqdm`.
    """
    names = list(contestants)
    turns = [
        names[(place + turn) % len(names)] for turn in range(rounds) for place in range(len(names))
    ]
    seconds = {name: [] for name in names}
    for name in progress(turns):
        seconds[name].append(contestants[name]())
    return seconds


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Spread:
    """Returns the spread of the ratios theirs / ours of each round."""
    return Spread.of([their / our for their, our in zip(theirs, ours, strict=True)])


def medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the median of each contestant's seconds, the fastest first."""
    found = {name: statistics.median(values) for name, values in seconds.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def calls_in_a_turn(seconds: float, turn_seconds: float, most: int = 200) -> int:
    """Returns the number of calls of `seconds` each that fill one measurement."""
    return max(1, min(most, round(turn_seconds / max(seconds, 1e-9))))
