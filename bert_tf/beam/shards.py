"""A corpus of files divided into shards: ranges of bytes, of row groups, or whole files.

A shard is what one worker processes at a time and the rows of one output file, in the order of the
input. Files of lines are cut at any byte (`readers` moves the cut to the next line), Parquet
files between row groups. CSV files, whose lines may be parts of a quoted field, TFRecord files and
compressed files cannot be cut.
"""

import bisect
import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from bert_tf.beam.file_access import match_files, open_file
from bert_tf.errors import DataError, UserError, check_limits
from bert_tf.inputs import ParquetRows


@dataclasses.dataclass(frozen=True)
class CorpusEntry:
    """A row of a corpus: the key that its text carries through a pipeline.

    Attributes:
        source: The path of its file.
        position: Where it begins in the file; see `readers`.
        columns: Its values by name.
    """

    source: str
    position: int
    columns: dict[str, Any]

    def texts(self, names: tuple[str, ...]) -> str | tuple[str, ...]:
        """Returns the value of a column, or those of several, as an example for a model.

        Raises `KeyError` if a column is missing. What its value is, the model checks.
        """
        values = tuple(self.columns[name] for name in names)
        return values if len(values) > 1 else values[0]


CORPUS_FORMATS = ("text", "jsonl", "csv", "tsv", "parquet", "tfrecord")
COMPRESSED = (".gz", ".bz2", ".xz")
_FORMAT_OF_SUFFIX = {
    ".txt": "text",
    ".text": "text",
    ".tfrecords": "tfrecord",
    ".tfrec": "tfrecord",
    **{f".{name}": name for name in CORPUS_FORMATS[1:]},
}
_CUT_ANYWHERE = ("text", "jsonl", "tsv")
# What one worker loses if it fails, some minutes of work of a small model on one core.
_SHARD_BYTES = 32 * 1024**2


@dataclasses.dataclass(frozen=True)
class FileRange:
    """A part of a file.

    Attributes:
        path: The file.
        format: One of `CORPUS_FORMATS`.
        start: The first byte of a file of lines, the first row group of a Parquet file.
        stop: The end, not included; None for the end of the file.
    """

    path: str
    format: str
    start: int = 0
    stop: int | None = None


@dataclasses.dataclass(frozen=True)
class Shard:
    """The ranges that become one output file.

    Attributes:
        number: From 0.
        ranges: Its parts of files, in the order of the input.
    """

    number: int
    ranges: tuple[FileRange, ...]


def plan_shards(
    patterns: Sequence[str],
    format: str | None = None,
    num_shards: int | None = None,
    least: int = 1,
) -> list[Shard]:
    """Divides the files of a corpus into shards of similar size.

    Args:
        patterns: Paths, directories, or patterns such as `texts/*.jsonl`, of any file system of
            Beam.
        format: One of `CORPUS_FORMATS`; None for what the ending of each file says.
        num_shards: The number of shards. None for one per 32 MiB.
        least: The minimum number of shards without `num_shards`, such as the number of workers.

    Returns:
        The shards. Some have no ranges if there is less to divide than shards.

    Raises:
        UserError: If a pattern has no file, or a file's ending says no format.

    Example:
        >>> from bert_tf.beam.shards import plan_shards
        >>> [shard] = plan_shards(["corpus/films.txt"])
        >>> [(part.path, part.format, part.start) for part in shard.ranges]
        [('corpus/films.txt', 'text', 0)]
    """
    check_limits(num_shards=num_shards, least=least)
    files = {file.path: file.size for file in match_files(patterns)}
    formats = {path: format or _format_of(path) for path in files}
    total = sum(files.values())
    count = num_shards or max(least, -(-total // _SHARD_BYTES))
    cuts = [number * total // count for number in range(count + 1)]
    ranges = [[] for _ in range(count)]
    before = 0  # bytes of the files before
    for path, size in files.items():
        for start, part in _parts(path, formats[path], size, [cut - before for cut in cuts]):
            number = bisect.bisect_right(cuts, before + start) - 1
            ranges[min(number, count - 1)].append(part)
        before += size
    return [Shard(number, tuple(parts)) for number, parts in enumerate(ranges)]


def _format_of(path):
    name = path.lower()
    name = re.sub(rf"({'|'.join(map(re.escape, COMPRESSED))})$", "", name)
    suffix = os.path.splitext(name)[1]
    if suffix not in _FORMAT_OF_SUFFIX:
        raise UserError(
            f"The ending of an input file must be one of {', '.join(_FORMAT_OF_SUFFIX)}, or the "
            f"format must be given, one of {', '.join(CORPUS_FORMATS)}. Received: {path}"
        )
    return _FORMAT_OF_SUFFIX[suffix]


def _parts(path, format, size, cuts) -> Iterator[tuple[int, FileRange]]:
    """Yields the parts of a file with the byte at which each begins, roughly for Parquet."""
    is_compressed = path.lower().endswith(COMPRESSED)
    if format in _CUT_ANYWHERE and not is_compressed:
        places = [0, *(cut for cut in cuts if 0 < cut < size), size]
        for start, stop in zip(places, places[1:]):
            if start < stop:
                yield start, FileRange(path, format, start, stop)
    elif format == "parquet":
        yield from _row_groups(path, size, cuts)
    else:
        yield 0, FileRange(path, format)


def _row_groups(path, size, cuts):
    try:
        with open_file(path) as file:
            sizes = [group.num_bytes for group in ParquetRows(file).groups]
    except (DataError, OSError):  # its reader says what is wrong
        sizes = []
    if not sum(sizes):
        yield 0, FileRange(path, "parquet")
        return
    # The sizes are of uncompressed data: they say how the bytes of the file are divided.
    starts = [size * sum(sizes[:group]) // sum(sizes) for group in range(len(sizes))]
    first = 0
    for group in range(1, len(sizes) + 1):
        is_last = group == len(sizes)
        if is_last or any(starts[first] < cut <= starts[group] for cut in cuts):
            yield starts[first], FileRange(path, "parquet", first, None if is_last else group)
            first = group
