"""Predicts a corpus: files in, one file of answers per shard and one of dead letters out.

    shards -> Reshuffle -> read, predict, write (one fused stage) -> finish

A shard is read, answered and written in one stage, so that no runner holds the rows of a corpus;
`output_files` says how the files get to their places.
"""

import dataclasses
import functools
import logging
import re
import uuid
from typing import NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.transforms.window import GlobalWindows

from bert_tf.beam.dead_letters import DeadLetter
from bert_tf.beam.file_access import open_file, remove_tree
from bert_tf.beam.model_handler import BertModelHandler, Refused
from bert_tf.beam.output_files import Counts, FinishOutput, OutputPart, PartFile, counts_of
from bert_tf.beam.readers import read_range
from bert_tf.beam.running import run_pipeline
from bert_tf.beam.shards import CorpusEntry, Shard
from bert_tf.beam.writers import Layout
from bert_tf.errors import DataError, UserError, user_error

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
        prefix: The output's path without number and ending; see `output_files`.
        staging: A folder on the same file system, which all workers reach; see `predict_corpus`.
        dead_letter_file: The path of the dead letters. None: the first one ends the run.

    Raises:
        DataError: In the pipeline: at the first dead letter without `dead_letter_file`.

    Example:
        >>> import glob
        >>> from apache_beam.options.pipeline_options import PipelineOptions
        >>> from bert_tf.beam import output_files, prediction, shards, writers
        >>> from bert_tf.beam.model_handler import BertModelHandler
        >>> handler = BertModelHandler("reviews/", "classify")
        >>> parts = shards.plan_shards(["corpus/films.txt"])
        >>> layout = writers.Layout("jsonl", "label")
        >>> staging = output_files.staging_folder("labels")
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
        dead_parts = [
            letters | name >> beam.ParDo(self._dead_letters()) for name, letters in steps.items()
        ]
        finish = FinishOutput(len(self.shards), self.layout, self.prefix, self.dead_letter_file)
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


class _EndRun(beam.DoFn):
    """Raises at the first dead letter."""

    def process(self, letter):
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
