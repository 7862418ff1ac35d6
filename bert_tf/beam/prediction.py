"""Predicts a corpus: files in, one file of answers per shard and one of dead letters out.

    shards -> Reshuffle -> read, predict, write (one fused stage) -> finish

A shard is read, answered and written in one stage, so no runner holds the rows of a corpus. Each
attempt at a bundle writes files of its own into a staging folder, and reports them at its end. The
last step takes only the files of the bundles that succeeded, so a bundle that is retried writes
no row twice, and moves them to their places when everything is written.
"""

import re
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.transforms.window import GlobalWindows

from bert_tf.beam.dead_letters import DeadLetter
from bert_tf.beam.model_handler import BertModelHandler, Refused
from bert_tf.beam.readers import read_range
from bert_tf.beam.rows import Row
from bert_tf.beam.shards import Shard
from bert_tf.beam.writers import SUFFIXES, WRITERS, Layout, write_without_rows
from bert_tf.errors import DataError, UserError

_DEAD = "dead"
_ROWS_TOGETHER = 512  # written at a time, for Parquet
_NAMESPACE = "bert_tf"
PREDICTED, DEAD_LETTERS = "predicted", "dead_letters"  # counters


class _Key(NamedTuple):
    shard: int
    row: Row


class _Part(NamedTuple):
    """A file in the staging folder; `shard` is None for dead letters."""

    shard: int | None
    path: str
    rows: int


def output_path(prefix: str, format: str, number: int, count: int) -> str:
    """Returns the path of an output file, such as `out-00000-of-00005.jsonl`."""
    return f"{prefix}-{number:05d}-of-{count:05d}{SUFFIXES[format]}"


def staging_folder(prefix: str) -> str:
    """Returns the path of a new hidden folder next to the output, for one run."""
    folder, name = FileSystems.split(prefix)
    return FileSystems.join(folder, f".{name}-{uuid.uuid4().hex}")


class PredictCorpus(beam.PTransform):
    """Reads, answers and writes the shards of a corpus; is applied to a pipeline.

    Args:
        handler: The model.
        shards: What `plan_shards` returned.
        names: The columns of the texts: one, or two for pairs.
        layout: The output's format, the column of the answers, and the input's columns.
        prefix: The output's path without number and ending; see `output_path`.
        staging: An empty folder on the same file system, which all workers reach and the caller
            removes after the run.
        dead_letter_file: The path of the dead letters. None: the first one ends the run.

    Raises:
        DataError: In the pipeline: at the first dead letter without `dead_letter_file`.

    Example:
        >>> import apache_beam as beam, glob, os
        >>> from bert_tf.beam import prediction, shards, writers
        >>> from bert_tf.beam.model_handler import BertModelHandler
        >>> handler = BertModelHandler("reviews/", "classify")
        >>> parts, layout = shards.plan_shards(["corpus/a.txt"]), writers.Layout("jsonl", "label")
        >>> staging = prediction.staging_folder("labels")
        >>> os.makedirs(staging)
        >>> options = beam.options.pipeline_options.PipelineOptions(["--allow_unsafe_triggers"])
        >>> with beam.Pipeline(options=options) as pipeline:
        ...     predict = prediction.PredictCorpus(
        ...         handler, parts, ("text",), layout, "labels", staging
        ...     )
        ...     _ = pipeline | predict
        >>> glob.glob("labels-*")
        ['labels-00000-of-00001.jsonl']
    """

    def __init__(
        self,
        handler: BertModelHandler,
        shards: list[Shard],
        names: tuple[str, ...],
        layout: Layout,
        prefix: str,
        staging: str,
        dead_letter_file: str | None = None,
    ):
        super().__init__()
        self.handler = handler
        self.shards = shards
        self.names = names
        self.layout = layout
        self.prefix = prefix
        self.staging = staging
        self.dead_letter_file = dead_letter_file

    def expand(self, pipeline):
        rows, unread = (
            pipeline
            | "Shards" >> beam.Create(self.shards, reshuffle=False)
            | "Distribute" >> beam.Reshuffle()
            | "Read" >> _parted(_Read(self.names, self.layout.answer))
        )
        answered, refused = (
            rows
            | "Predict" >> RunInference(KeyedModelHandler(self.handler))
            | "Refuse" >> _parted(_Refuse())
        )
        parts, unwritten = answered | "Write" >> _parted(_Write(self.layout, self.staging))
        # Each by itself: flattened first, they would not be in the fused stage.
        steps = {"Unread": unread, "Refused": refused, "Unwritten": unwritten}
        dead_parts = [
            letters | name >> beam.ParDo(self._dead_letters()) for name, letters in steps.items()
        ]
        finish = _Finish(len(self.shards), self.layout, self.prefix, self.dead_letter_file)
        files = (parts, *dead_parts) | "Files" >> beam.Flatten()
        return (
            pipeline
            | "Once" >> beam.Create([self.staging])
            | "Finish" >> beam.ParDo(finish, beam.pvalue.AsList(files))
        )

    def _dead_letters(self):
        if self.dead_letter_file is None:
            return _EndRun()
        return _WriteDeadLetters(self.staging)


def _parted(function):
    """Returns the step of a `DoFn` whose outputs are its results and its dead letters."""
    return beam.ParDo(function).with_outputs(_DEAD, main="results")


def _dead(letter: DeadLetter):
    return beam.pvalue.TaggedOutput(_DEAD, letter)


def _letter(row: Row, error: str) -> DeadLetter:
    return DeadLetter.of(row.source, row.position, repr(row.columns), error)


class _Read(beam.DoFn):
    """A shard to keyed examples."""

    def __init__(self, names, answer):
        self._names = names
        self._answer = answer

    def process(self, shard: Shard):
        for part in shard.ranges:
            for row in read_range(part, self._names):
                if isinstance(row, DeadLetter):
                    yield _dead(row)
                    continue
                error = self._error(row)
                if error:
                    yield _dead(_letter(row, error))
                else:
                    yield _Key(shard.number, row), row.texts(self._names)

    def _error(self, row):
        missing = [name for name in self._names if name not in row.columns]
        columns = ", ".join(row.columns)
        if missing:
            return f"A row must have a column {missing[0]!r}. Received: {columns}"
        if self._answer in row.columns:
            return f"A row must not have the answer's column {self._answer!r}. Received: {columns}"
        return None


class _Refuse(beam.DoFn):
    """Examples that the model refused become dead letters."""

    def process(self, element):
        key, result = element
        if isinstance(result.inference, Refused):
            yield _dead(_letter(key.row, result.inference.error))
        else:
            yield key, result.inference


class _OpenPart:
    """A file in the staging folder that a bundle is writing."""

    def __init__(self, staging, layout):
        self.path = FileSystems.join(staging, uuid.uuid4().hex)
        self._writer = WRITERS[layout.format](_created(self.path), layout)
        self._waiting = []
        self.rows = 0

    def add(self, row: Row, answer: Any) -> Iterator[DeadLetter]:
        self._waiting.append((row, answer))
        if len(self._waiting) == _ROWS_TOGETHER:
            yield from self._write()

    def close(self) -> Iterator[DeadLetter]:
        yield from self._write()
        self._writer.close()

    def _write(self):
        failures = self._writer.write(self._waiting)
        self.rows += len(self._waiting) - len(failures)
        self._waiting = []
        for row, error in failures:
            yield _letter(row, error)


class _Write(beam.DoFn):
    """Answers to one file per shard and bundle."""

    def __init__(self, layout, staging):
        self._layout = layout
        self._staging = staging

    def start_bundle(self):
        self._parts = []  # those that are complete
        self._shard = self._open = None

    def process(self, element):
        key, answer = element
        if key.shard != self._shard:  # in one fused stage, all rows of a shard come together
            for letter in self._close():
                yield _dead(letter)
            self._shard, self._open = key.shard, _OpenPart(self._staging, self._layout)
        for letter in self._open.add(key.row, answer):
            yield _dead(letter)

    def finish_bundle(self):
        for letter in self._close():
            yield _dead(GlobalWindows.windowed_value(letter))
        yield from map(GlobalWindows.windowed_value, self._parts)

    def _close(self):
        if self._open is not None:
            yield from self._open.close()
            if self._open.rows:
                self._parts.append(_Part(self._shard, self._open.path, self._open.rows))


class _WriteDeadLetters(beam.DoFn):
    """Dead letters to one file per bundle."""

    def __init__(self, staging):
        self._staging = staging

    def start_bundle(self):
        self._path = FileSystems.join(self._staging, uuid.uuid4().hex)
        self._file = None
        self._count = 0

    def process(self, letter):
        if self._file is None:
            self._file = _created(self._path)
        self._file.write((letter.to_json() + "\n").encode("utf-8", "backslashreplace"))
        self._count += 1

    def finish_bundle(self):
        if self._file is not None:
            self._file.close()
            yield GlobalWindows.windowed_value(_Part(None, self._path, self._count))


class _EndRun(beam.DoFn):
    """Raises at the first dead letter."""

    def process(self, letter):
        at = "" if letter.position is None else f", position {letter.position}"
        raise DataError(
            f"{letter.source}{at} must be a row that can be predicted. Received: {letter.error} "
            "Set dead_letter_file to go on without such rows."
        )


class _Finish(beam.DoFn):
    """Moves the files of the bundles that succeeded to their places, and counts their rows."""

    def __init__(self, count, layout, prefix, dead_letter_file):
        self._count = count
        self._layout = layout
        self._prefix = prefix
        self._dead_letter_file = dead_letter_file

    def process(self, staging, parts):
        shards = sorted(part for part in parts if part.shard is not None)
        dead = sorted(part for part in parts if part.shard is None)
        like = shards[0].path if shards else None
        filled = {part.shard for part in shards}
        for number in set(range(self._count)) - filled:
            empty = _Part(number, FileSystems.join(staging, f"empty-{number}"), 0)
            self._write_empty(empty.path, like)
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
            with _created(sources[-1]) as file:
                for part in dead:
                    _append(part.path, file)
        _move(sources, places)
        old = set(old_outputs(self._prefix, self._layout.format)) - set(places)
        if old:
            FileSystems.delete(sorted(old))
        for name, counted_parts in ((PREDICTED, shards), (DEAD_LETTERS, dead)):
            Metrics.counter(_NAMESPACE, name).inc(sum(part.rows for part in counted_parts))
        return places

    def _write_empty(self, path, like):
        if like is None:
            write_without_rows(_created(path), self._layout)
            return
        with _opened(like) as other:
            write_without_rows(_created(path), self._layout, other)


def old_outputs(prefix: str, format: str) -> list[str]:
    """Returns the output files that are in the places of a run, with any number of shards."""
    (found,) = FileSystems.match([f"{prefix}-*-of-*{SUFFIXES[format]}"])
    ending = re.compile(rf"-\d{{5,}}-of-\d{{5,}}{re.escape(SUFFIXES[format])}")
    # The prefix as it is, whatever the file system makes of it.
    name = FileSystems.split(prefix)[1]
    paths = [one.path for one in found.metadata_list]
    return [p for p in paths if ending.fullmatch(FileSystems.split(p)[1].removeprefix(name))]


def _move(sources, places):
    """Moves files to their places, which may have files of an earlier run."""
    try:
        FileSystems.rename(sources, places)
    except BeamIOError:  # some file systems do not replace a file
        left = [(s, p) for s, p in zip(sources, places) if FileSystems.exists(s)]
        there = [place for _, place in left if FileSystems.exists(place)]
        if not there:
            raise
        FileSystems.delete(there)
        FileSystems.rename(*map(list, zip(*left)))


def _created(path):
    return FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def _opened(path):
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def _append(path, file):
    with _opened(path) as part:
        while content := part.read(1 << 20):
            file.write(content)


def counted(result, name: str) -> int:
    """Returns the value of a counter, `PREDICTED` or `DEAD_LETTERS`, of a finished run."""
    found = result.metrics().query(beam.metrics.MetricsFilter().with_name(name))["counters"]
    return sum(counter.result for counter in found if counter.key.metric.namespace == _NAMESPACE)


def error_of(error: BaseException) -> UserError | None:
    """Returns the `UserError` that ended a pipeline in any of its processes, or None.

    Beam adds the step to the message of an exception, and in other processes makes it a
    `RuntimeError` with the traceback as its message.
    """
    if isinstance(error, UserError):
        message = str(error)
    else:
        found = re.findall(r"^bert_tf\.errors\.\w+: (.*)", str(error), re.MULTILINE)
        if not found:
            return None
        message = found[-1]
    return UserError(message.partition(" [while running ")[0])


def remove(folder: str) -> None:
    """Removes the staging folder of a run, if it exists."""
    try:
        if FileSystems.exists(folder):
            FileSystems.delete([folder])
    except BeamIOError:  # only what is left over; another process may have removed it
        return
