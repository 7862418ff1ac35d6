"""Progress bars on a terminal; elsewhere, as in a log file, a line now and then."""

import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from tqdm import tqdm

SECONDS_PER_LINE = 30.0

_always = False


def show_always() -> None:
    """Shows progress bars also where there is no terminal, as `-v 1` of the programs asks."""
    global _always
    _always = True


def shows_bars(stream: TextIO) -> bool:
    """Returns whether a progress bar may be drawn on a stream.

    Example:
        >>> import io
        >>> shows_bars(io.StringIO())
        False
    """
    return _always or stream.isatty() or "ipykernel" in sys.modules  # a notebook


def progress_bar(
    iterable: Iterable | None = None, *arguments, delay: float = 0.0, **options
) -> tqdm:
    """Makes a `tqdm.tqdm` on stderr, which prints complete lines where there is no terminal.

    Args:
        iterable: See `tqdm.tqdm`.
        *arguments: See `tqdm.tqdm`.
        delay: Seconds before the first progress is shown.
        **options: See `tqdm.tqdm`.

    Returns:
        A bar. Without a terminal it prints a line every `SECONDS_PER_LINE`, and none if the work
        ends before that.

    Example:
        >>> sum(progress_bar([1, 2, 3], desc="adding"))
        6
    """
    if not shows_bars(sys.stderr):
        delay = SECONDS_PER_LINE
        options |= {"file": _Lines(), "mininterval": SECONDS_PER_LINE, "miniters": 1}
        options |= {"leave": True, "ascii": True}
    return tqdm(iterable, *arguments, delay=delay, **options)


def progress_slices(count: int, size: int, **options) -> Iterator[slice]:
    """Cuts items into parts, with a progress bar that counts the items.

    Args:
        count: Number of items.
        size: Most items of a part.
        **options: See `progress_bar`.

    Yields:
        The slice of each part; without items, one empty slice.

    Example:
        >>> list(progress_slices(5, 3, desc="reading"))
        [slice(0, 3, None), slice(3, 5, None)]
    """
    with progress_bar(total=count, **options) as bar:
        for start in range(0, max(1, count), size):
            end = min(start + size, count)
            yield slice(start, end)
            bar.update(end - start)


class _Lines:
    """A file for tqdm: what it draws in place becomes lines of stderr."""

    _last = None

    def write(self, text):
        done = text.partition("[")[0].strip()  # without times
        if done and done != self._last:  # at its end, tqdm draws the last line once more
            print(text.strip(), file=sys.stderr, flush=True)
            self._last = done

    def flush(self):
        sys.stderr.flush()
