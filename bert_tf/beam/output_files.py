"""The output of a pipeline: files written in parts, and moved when all of them are complete.

Each attempt at a bundle writes files of its own. `FinishOutput` gets only those of the bundles that
succeeded, so that a bundle that is retried writes no row twice.
"""

import json
import re
import uuid
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from bert_tf.beam.file_access import open_file, remove, rename
from bert_tf.beam.shards import CorpusEntry
from bert_tf.beam.workspace import Workspace
from bert_tf.beam.writers import OUTPUT_SUFFIXES, WRITERS, Failures, Layout, write_without_rows

_ROWS_TOGETHER = 512  # written at a time, for Parquet
# Files of the staging folder: what is moved, and later the counts of the complete output.
_MOVES, _COUNTS = "moves", "counts.json"


class OutputPart(NamedTuple):
    """A file in the staging folder; `shard` is None for dead letters."""

    shard: int | None
    path: str
    rows: int


class Counts(NamedTuple):
    """The rows of a run that are in its output, and its dead letters."""

    predicted: int
    dead_letters: int


def counts_of(staging: str) -> Counts:
    """Returns the counts of a finished run."""
    with open_file(FileSystems.join(staging, _COUNTS)) as file:
        return Counts(*json.loads(file.read()))


def output_path(prefix: str, format: str, number: int, count: int) -> str:
    """Returns the path of an output file, such as `out-00000-of-00005.jsonl`."""
    return f"{prefix}-{number:05d}-of-{count:05d}{OUTPUT_SUFFIXES[format]}"


def staging_folder(prefix: str) -> str:
    """Returns the path of a new hidden folder next to the output, for one run."""
    folder, name = FileSystems.split(prefix)
    return FileSystems.join(folder, f".{name}-{uuid.uuid4().hex}")


class PartFile:
    """A file in the staging folder that a bundle is writing; what it cannot hold is returned.

    Args:
        staging: The folder.
        layout: What the output's files have in common.

    Attributes:
        path: The file.
        rows: The number of rows written, complete after `close`.
    """

    def __init__(self, staging: str, layout: Layout):
        self.path = FileSystems.join(staging, uuid.uuid4().hex)
        self._writer = WRITERS[layout.format](open_file(self.path, "wb"), layout)
        self._waiting = []
        self.rows = 0

    def add(self, row: CorpusEntry, answer: Any) -> Failures:
        self._waiting.append((row, answer))
        if len(self._waiting) == _ROWS_TOGETHER:
            return self._write()
        return []

    def close(self) -> Failures:
        failures = self._write()
        self._writer.close()
        return failures

    def _write(self):
        failures = self._writer.write(self._waiting)
        self.rows += len(self._waiting) - len(failures)
        self._waiting = []
        return failures


class FinishOutput(beam.DoFn):
    """Moves the files of the bundles that succeeded to their places, and counts their rows.

    Takes the staging folder, and all parts as a side input. A runner may do it again: what is
    moved, and where, is written down before the first move.

    Args:
        count: The number of shards.
        layout: What the output's files have in common.
        prefix: The output's path without number and ending.
        dead_letter_file: The path of the dead letters, or None.
    """

    def __init__(
        self, count: int, layout: Layout, prefix: str, dead_letter_file: str | None = None
    ):
        self._count = count
        self._layout = layout
        self._prefix = prefix
        self._dead_letter_file = dead_letter_file

    def process(self, staging, parts):
        moves, counts = Workspace(staging).once(_MOVES, lambda: self._prepared(staging, parts))
        for source, place in moves:
            if FileSystems.exists(source):  # else it is moved already
                rename(source, place)
        places = [place for _, place in moves]
        old = set(old_outputs(self._prefix, self._layout.format)) - set(places)
        remove(sorted(old))
        with open_file(FileSystems.join(staging, _COUNTS), "wb") as file:
            file.write(json.dumps(counts).encode())
        return places

    def _prepared(self, staging, parts):
        """Returns the files with their places, and the `Counts`; writes those that are missing."""
        shards = sorted(part for part in parts if part.shard is not None)
        dead = sorted(part for part in parts if part.shard is None)
        written = shards[0].path if shards else None
        filled = {part.shard for part in shards}
        for number in set(range(self._count)) - filled:
            empty = OutputPart(number, FileSystems.join(staging, f"empty-{number}"), 0)
            self._write_empty(empty.path, written)
            shards.append(empty)
        shards.sort()  # by their shards; a runner that does not fuse makes several of one
        sources = [part.path for part in shards]
        places = [
            output_path(self._prefix, self._layout.format, number, len(shards))
            for number in range(len(shards))
        ]
        if self._dead_letter_file is not None:
            # Next to its place: a file can only be moved within a file system.
            sources.append(staging_folder(self._dead_letter_file))
            places.append(self._dead_letter_file)
            with open_file(sources[-1], "wb") as file:
                for part in dead:
                    _append(part.path, file)
        counts = Counts(*(sum(part.rows for part in parts) for parts in (shards, dead)))
        return [*zip(sources, places, strict=True)], counts

    def _write_empty(self, path, like):
        if like is None:
            write_without_rows(open_file(path, "wb"), self._layout)
            return
        with open_file(like) as other:
            write_without_rows(open_file(path, "wb"), self._layout, other)


def old_outputs(prefix: str, format: str) -> list[str]:
    """Returns the output files that are in the places of a run, with any number of shards."""
    (found,) = FileSystems.match([f"{prefix}-*-of-*{OUTPUT_SUFFIXES[format]}"])
    ending = re.compile(rf"-\d{{5,}}-of-\d{{5,}}{re.escape(OUTPUT_SUFFIXES[format])}")
    # The prefix as it is, whatever the file system makes of it.
    name = FileSystems.split(prefix)[1]
    paths = [one.path for one in found.metadata_list]
    return [p for p in paths if ending.fullmatch(FileSystems.split(p)[1].removeprefix(name))]


def _append(path, file):
    with open_file(path) as part:
        while content := part.read(1 << 20):
            file.write(content)
