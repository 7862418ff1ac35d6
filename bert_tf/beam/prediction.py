"""Predicts a corpus: files in, one file of answers per shard and one of dead letters out.

    shards -> Reshuffle -> read, predict, write (one fused stage) -> finish

A shard is read, answered and written in one stage, so that no runner holds the rows of a corpus.
The output is written in parts, and moved when all of them are complete. Each attempt at a bundle
writes files of its own. `FinishOutput` gets only those of the bundles that succeeded, so that a
bundle that is retried writes no row twice.
"""

import dataclasses
import functools
import json
import logging
import re
import shutil
import uuid
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.transforms.window import GlobalWindows

from bert_tf.beam.file_access import open_file, remove, remove_tree, rename
from bert_tf.beam.model_handler import BertModelHandler, Refused
from bert_tf.beam.readers import read_range
from bert_tf.beam.running import run_pipeline
from bert_tf.beam.shards import CorpusEntry, Shard
from bert_tf.beam.workspace import DeadLetter, Workspace
from bert_tf.beam.writers import OUTPUT_SUFFIXES, WRITERS, Failures, Layout, write_without_rows
from bert_tf.errors import DataError, UserError, user_error

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

    `rows` is the number of rows written, complete after `close`.
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


@dataclasses.dataclass(eq=False)
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

    count: int
    layout: Layout
    prefix: str
    dead_letter_file: str | None = None

    def process(self, staging, parts):
        moves, counts = Workspace(staging).once(_MOVES, lambda: self._prepared(staging, parts))
        for source, place in moves:
            if FileSystems.exists(source):  # else it is moved already
                rename(source, place)
        places = [place for _, place in moves]
        old = set(old_outputs(self.prefix, self.layout.format)) - set(places)
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
        for number in set(range(self.count)) - filled:
            empty = OutputPart(number, FileSystems.join(staging, f"empty-{number}"), 0)
            self._write_empty(empty.path, written)
            shards.append(empty)
        shards.sort()  # by their shards; a runner that does not fuse makes several of one
        sources = [part.path for part in shards]
        places = [
            output_path(self.prefix, self.layout.format, number, len(shards))
            for number in range(len(shards))
        ]
        if self.dead_letter_file is not None:
            # Next to its place: a file can only be moved within a file system.
            sources.append(staging_folder(self.dead_letter_file))
            places.append(self.dead_letter_file)
            with open_file(sources[-1], "wb") as file:
                for part in dead:
                    with open_file(part.path) as letters:
                        shutil.copyfileobj(letters, file)
        counts = Counts(*(sum(part.rows for part in parts) for parts in (shards, dead)))
        return [*zip(sources, places, strict=True)], counts

    def _write_empty(self, path, like):
        if like is None:
            write_without_rows(open_file(path, "wb"), self.layout)
            return
        with open_file(like) as other:
            write_without_rows(open_file(path, "wb"), self.layout, other)


def old_outputs(prefix: str, format: str) -> list[str]:
    """Returns the output files that are in the places of a run, with any number of shards."""
    (found,) = FileSystems.match([f"{prefix}-*-of-*{OUTPUT_SUFFIXES[format]}"])
    ending = re.compile(rf"-\d{{5,}}-of-\d{{5,}}{re.escape(OUTPUT_SUFFIXES[format])}")
    # The prefix as it is, whatever the file system makes of it.
    name = FileSystems.split(prefix)[1]
    paths = [one.path for one in found.metadata_list]
    return [p for p in paths if ending.fullmatch(FileSystems.split(p)[1].removeprefix(name))]


_DEAD = "dead"


class _Key(NamedTuple):
    shard: int
    row: CorpusEntry


@dataclasses.dataclass(eq=False)
class PredictCorpus(beam.PTransform):
    """Reads, answers and writes the shards of a corpus; is applied to a pipeline.

    Args:
        handler: The model.
        shards: What `plan_shards` returned.
        names: The columns of the texts, one or two for pairs, and of what else the task reads.
        layout: The output's format, the column of the answers, and the input's columns.
        prefix: The output's path without number and ending; see `output_path`.
        staging: A folder on the same file system, which all workers reach; see `predict_corpus`.
        dead_letter_file: The path of the dead letters. None: the first one ends the run.

    Raises:
        DataError: In the pipeline: at the first dead letter without `dead_letter_file`.

    Example:
        >>> import glob
        >>> from apache_beam.options.pipeline_options import PipelineOptions
        >>> from bert_tf.beam import prediction, shards, writers
        >>> from bert_tf.beam.model_handler import BertModelHandler
        >>> handler = BertModelHandler("reviews/", "classify")
        >>> parts = shards.plan_shards(["corpus/films.txt"])
        >>> layout = writers.Layout("jsonl", "label")
        >>> staging = prediction.staging_folder("labels")
        >>> predict = prediction.PredictCorpus(handler, parts, ("text",), layout, "labels", staging)
        >>> options = PipelineOptions(["--allow_unsafe_triggers"])  # the runner without Prism
        >>> counts = prediction.predict_corpus(predict, options)
        >>> counts.dead_letters, glob.glob("labels-*")
        (0, ['labels-00000-of-00001.jsonl'])
    """

    handler: BertModelHandler
    shards: list[Shard]
    names: tuple[str, ...]
    layout: Layout
    prefix: str
    staging: str
    dead_letter_file: str | None = None

    def __post_init__(self):
        super().__init__()

    def expand(self, pipeline):
        rows, unread = (
            pipeline
            | "Shards" >> beam.Create(self.shards, reshuffle=False)
            | "Distribute" >> beam.Reshuffle()
            | "Read" >> _parted(beam.FlatMap(_read, self.names, self.layout.answer))
        )
        answered, refused = (
            rows
            | "Predict" >> RunInference(KeyedModelHandler(self.handler))
            | "Refuse" >> _parted(beam.FlatMap(_refuse))
        )
        parts, unwritten = answered | "Write" >> _parted(
            beam.ParDo(_Write(self.layout, self.staging))
        )
        # Each by itself: flattened first, they would not be in the fused stage.
        steps = {"Unread": unread, "Refused": refused, "Unwritten": unwritten}
        report = beam.Map(_end_run)
        if self.dead_letter_file is not None:
            report = beam.ParDo(_WriteDeadLetters(self.staging))
        dead_parts = [letters | name >> report for name, letters in steps.items()]
        finish = FinishOutput(len(self.shards), self.layout, self.prefix, self.dead_letter_file)
        files = (parts, *dead_parts) | "Files" >> beam.Flatten()
        return (
            pipeline
            | "Once" >> beam.Create([self.staging])
            | "Finish" >> beam.ParDo(finish, beam.pvalue.AsList(files))
        )


def _parted(step):
    """Returns a step whose outputs are its results and its dead letters."""
    return step.with_outputs(_DEAD, main="results")


def _dead(letter: DeadLetter):
    return beam.pvalue.TaggedOutput(_DEAD, letter)


def _letter(row: CorpusEntry, error: str) -> DeadLetter:
    return DeadLetter.of(row.source, row.position, repr(row.columns), error)


def _read(shard: Shard, names, answer):
    """Yields the keyed examples of a shard."""
    for part in shard.ranges:
        for row in read_range(part, names):
            if isinstance(row, DeadLetter):
                yield _dead(row)
            elif error := _error_of(row, names, answer):
                yield _dead(_letter(row, error))
            else:
                yield _Key(shard.number, row), row.texts(names)


def _error_of(row, names, answer):
    missing = [name for name in names if name not in row.columns]
    columns = ", ".join(row.columns)
    if missing:
        return f"A row must have a column {missing[0]!r}. Received: {columns}"
    if answer in row.columns:
        return f"A row must not have the answer's column {answer!r}. Received: {columns}"
    return None


def _refuse(element):
    """Yields an answer, or the dead letter of an example that the model refused."""
    key, result = element
    if isinstance(result.inference, Refused):
        yield _dead(_letter(key.row, result.inference.error))
    else:
        yield key, result.inference


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
            for failure in self._close():
                yield _dead(_letter(*failure))
            self._shard, self._open = key.shard, PartFile(self._staging, self._layout)
        for failure in self._open.add(key.row, answer):
            yield _dead(_letter(*failure))

    def finish_bundle(self):
        for failure in self._close():
            yield _dead(GlobalWindows.windowed_value(_letter(*failure)))
        yield from map(GlobalWindows.windowed_value, self._parts)

    def _close(self):
        if self._open is None:
            return []
        failures = self._open.close()
        if self._open.rows:
            self._parts.append(OutputPart(self._shard, self._open.path, self._open.rows))
        return failures


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
            self._file = open_file(self._path, "wb")
        self._file.write((letter.to_json() + "\n").encode("utf-8"))
        self._count += 1

    def finish_bundle(self):
        if self._file is not None:
            self._file.close()
            yield GlobalWindows.windowed_value(OutputPart(None, self._path, self._count))


def _end_run(letter):
    """Raises at the first dead letter."""
    at = "" if letter.position is None else f", position {letter.position}"
    expected = "be a row that can be predicted"
    received = f"{letter.error} Set dead_letter_file to go on without such rows."
    raise user_error(f"{letter.source}{at}", expected, received, DataError)


def predict_corpus(
    transform: PredictCorpus,
    options: beam.options.pipeline_options.PipelineOptions,
    max_retries: int = 3,
) -> Counts:
    """Runs a pipeline of `PredictCorpus` to its end.

    Its staging folder is created, and removed at the end.

    Args:
        transform: The prediction.
        options: Beam's options.
        max_retries: How many more times the corpus is predicted, from its beginning, if a worker
            process of the DirectRunner is lost.

    Returns:
        The `Counts`.

    Raises:
        UserError: At the first dead letter if there is no file for them, if the model cannot be
            loaded, or if workers of the DirectRunner are lost in all attempts.
    """
    FileSystems.mkdirs(transform.staging)
    try:
        build = functools.partial(_apply, transform)
        run_pipeline(build, options, max_retries, after_errors=False)
        return counts_of(transform.staging)
    except UserError as error:
        raise error_of(error) from None
    finally:
        remove_tree(transform.staging)


def _apply(transform, pipeline):
    # Beam would print the traceback of a dead letter several times; it is in the error anyway.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    # Without PyTorch, Beam 2.77 takes `resource` for missing and says so at the end of each worker.
    logging.getLogger().addFilter(lambda record: "Resource module" not in str(record.msg))
    return pipeline | transform


def error_of(error: UserError) -> UserError:
    """Returns the `UserError` in the traceback that a failed run has as its message, if any.

    Beam adds the step to the message of an exception.
    """
    found = re.findall(r"^bert_tf\.errors\.\w+: (.*)", str(error), re.MULTILINE)
    return UserError(found[-1].partition(" [while running ")[0]) if found else error
