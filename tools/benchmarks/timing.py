"""Interleaved timing: A B C A B C …, medians, and ratios with their spread.

The clock of a shared or throttled machine drifts by more than the differences looked for. So no
contestant is measured in one go: each round asks every contestant once, the ratio is taken inside
the round, and what is reported is the median ratio with the smallest and largest.
"""

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest value seen."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of at least one value."""
        if not values:
            raise ValueError("Expected at least one value. Received: values=[]")
        return cls(min(values), statistics.median(values), max(values))


def interleave(
    contestants: Mapping[str, Callable[[], float]],
    rounds: int,
    progress: Callable[[Sequence], Sequence] = iter,
) -> dict[str, list[float]]:
    """Asks every contestant once a round.

    The order turns by one place each round, so that nobody always runs after the same neighbour.

    Args:
        contestants: name -> a function that makes one measurement and returns it, in seconds.
        rounds: How often each is asked.
        progress: Wraps the sequence of turns, as `tqdm.tqdm` does.

    Returns:
        name -> the measurements, one a round, in the order of the rounds.
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
    """How many times longer they took than we did, round by round."""
    if len(theirs) != len(ours):
        raise ValueError(
            f"Expected one measurement a round from both. Received: {len(theirs)} and {len(ours)}"
        )
    return Spread.of([their / our for their, our in zip(theirs, ours)])


def calls_in_a_turn(seconds: float, turn_seconds: float, most: int = 200) -> int:
    """How many calls of `seconds` fill a turn; the turn's measurement is their median."""
    return max(1, min(most, round(turn_seconds / max(seconds, 1e-9))))
