"""The table of the scores of several runs."""

import math
import statistics
from collections.abc import Sequence

# The 97.5 % quantile of Student's t by degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


def interval(scores: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and half of the 95 % interval of the mean over the seeds (Student's t)."""
    mean = statistics.fmean(scores)
    if len(scores) == 1:
        return mean, math.nan
    t = _T[min(len(scores) - 2, len(_T) - 1)]
    return mean, t * statistics.stdev(scores) / math.sqrt(len(scores))


def markdown(
    header: Sequence[str], rows: Sequence[tuple[str, Sequence[Sequence[float]]]]
) -> list[str]:
    """Returns the lines of a table with a row per name: means of the scores and their intervals."""
    lines = ["| | " + " | ".join(header) + " |", "|---|" + "---:|" * len(header)]
    for name, columns in rows:
        cells = []
        for scores in columns:
            mean, half = interval(scores)
            cells.append(f"{mean:.3f}" if math.isnan(half) else f"{mean:.3f} ± {half:.3f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines
