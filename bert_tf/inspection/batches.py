"""Many changed copies of one row, computed some at a time."""

from collections.abc import Callable, Iterator

import numpy as np

TOKENS_OF_COPIES = 4096


def parts(num_rows: int, length: int) -> Iterator[slice]:
    """Yields slices of rows with at most `TOKENS_OF_COPIES` tokens together, or one row.

    Example:
        >>> [part.stop - part.start for part in parts(5, 2000)]
        [2, 2, 1]
    """
    size = max(1, TOKENS_OF_COPIES // max(length, 1))
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def in_parts(num_rows: int, length: int, compute: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Returns what `compute` returns for the parts of the rows, one after another."""
    return np.concatenate([np.asarray(compute(part)) for part in parts(num_rows, length)])
