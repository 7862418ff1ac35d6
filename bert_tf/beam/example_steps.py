"""The steps of a pipeline that makes the examples of chunks, through files in a `Workspace`.

Between the steps are only names of files, never text or examples: the DirectRunner holds all
elements between two steps in memory.
"""

import dataclasses
import io
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np

from bert_tf.base.text_lines import FileSpan
from bert_tf.beam import example_partitions
from bert_tf.beam.file_access import open_file, read_segment, remove, write_segments
from bert_tf.beam.file_blocks import BLOCK_BYTES, spread_spans
from bert_tf.beam.line_formats import LineFormat
from bert_tf.beam.workspace import Workspace
from bert_tf.errors import require
from bert_tf.tasks.pretraining import (
    DEFAULT_CHUNK_BYTES,
    Chunk,
    ExampleOptions,
    MaskingVocabulary,
    PretrainingSummary,
    TokenizedChunk,
    make_records,
    tokenize_documents,
)
from bert_tf.text import BertTokenizer

CHUNKS = "chunks.jsonl"  # the spans of the chunks
PLAN = "plan"  # the result of the step after all runs


@dataclasses.dataclass(frozen=True)
class ExampleSettings:
    """What determines the records of a corpus.

    Args:
        vocabulary: The pieces of the vocabulary.
        lowercase: Whether the tokenizer converts text to lower case.
        options: Lengths and probabilities of the examples.
        line_format: How the files are read.
        dupe_factor: The number of passes over each document, with different pairs and masks.
        random_seed: The seed.
        chunk_bytes: The text of a chunk, as in `scan_documents`.
        num_files: The number of output files.
        partition_bytes: The records that a worker merges in memory.
        block_bytes: The text that a worker scans at a time.

    Raises:
        ConfigError: If a number is less than 1.
    """

    vocabulary: Sequence[str]
    lowercase: bool = True
    options: ExampleOptions = dataclasses.field(default_factory=ExampleOptions)
    line_format: LineFormat = dataclasses.field(default_factory=LineFormat)
    dupe_factor: int = 10
    random_seed: int = 12345
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    num_files: int = 1
    partition_bytes: int = example_partitions.PARTITION_BYTES
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self):
        names = ("dupe_factor", "chunk_bytes", "num_files", "partition_bytes", "block_bytes")
        for name in names:
            require(getattr(self, name) >= 1, "must be at least 1", **{name: getattr(self, name)})

    def tokenizer(self):
        """Returns the tokenizer."""
        errors = self.line_format.errors
        return BertTokenizer(list(self.vocabulary), lowercase=self.lowercase, errors=errors)


def add_steps(
    workspace: Workspace, settings: ExampleSettings, partitions: int, pipeline: beam.Pipeline
) -> None:
    """Adds the steps to a pipeline."""
    (
        pipeline
        | "chunks" >> spread_spans(workspace.path(CHUNKS))
        | "tokenize" >> beam.ParDo(_Tokenize(workspace, settings))
        | "passes" >> beam.FlatMap(_passes, settings.dupe_factor)
        | "spread passes" >> beam.Reshuffle()
        | "make examples" >> beam.ParDo(_MakeRun(workspace, settings, partitions))
        | "all runs" >> beam.GroupByKey()
        | "plan" >> beam.FlatMap(_plan, workspace, settings, partitions)
        | "spread partitions" >> beam.Reshuffle()
        | "merge" >> beam.Map(_merge, workspace, settings.num_files)
        | "all partitions" >> beam.GroupByKey()
        | "files" >> beam.FlatMap(_files, workspace, settings.num_files)
        | "spread files" >> beam.Reshuffle()
        | "write" >> beam.Map(_write_file, workspace)
    )


class _Tokenize(beam.DoFn):
    """Writes the token ids of a chunk."""

    def __init__(self, workspace: Workspace, settings: ExampleSettings):
        self.workspace, self.settings = workspace, settings

    def setup(self):
        self.tokenizer = self.settings.tokenizer()

    def process(self, item: tuple[int, list[FileSpan]]):
        number, spans = item
        name = f"tokens-{number:08}"
        yield number, self.workspace.file(name, lambda path: self._write(path, spans))

    def _write(self, path, spans) -> None:
        documents = list(self.settings.line_format.documents(Chunk(spans)))
        arrays = tokenize_documents(documents, self.tokenizer)
        write_segments(path, [[_array_bytes(array)] for array in arrays])


def _passes(item: tuple[int, str], dupe_factor: int) -> Iterator[tuple[int, str, int]]:
    for dupe in range(dupe_factor):
        yield (*item, dupe)


class _MakeRun(beam.DoFn):
    """Writes the run of one pass over a chunk."""

    def __init__(self, workspace: Workspace, settings: ExampleSettings, partitions: int):
        self.workspace, self.settings, self.partitions = workspace, settings, partitions

    def setup(self):
        self.vocabulary = MaskingVocabulary.of(self.settings.tokenizer())

    def process(self, item: tuple[int, str, int]):
        number, tokens, dupe = item
        name = f"run-{number:08}-{dupe:08}"
        yield None, self.workspace.once(name, lambda: self._write(name, number, tokens, dupe))

    def _write(self, name, number, tokens, dupe) -> dict:
        chunk = TokenizedChunk(*(np.load(io.BytesIO(read_segment(tokens, n))) for n in range(3)))
        seed = (self.settings.random_seed, number, dupe)
        made = make_records(chunk, self.vocabulary, self.settings.options, seed)
        keys, records, summary = made
        path = self.workspace.new_path(name)
        example_partitions.write_partitioned_run(path, keys, records, self.partitions)
        return {"path": path, "tokens": tokens, "summary": dataclasses.asdict(summary)}


def _plan(
    item: tuple[None, Iterable[dict]],
    workspace: Workspace,
    settings: ExampleSettings,
    partitions: int,
) -> Iterator[tuple[int, int]]:
    """Adds up all runs and yields, for each partition, the number of its first record."""

    def add_up() -> dict:
        summary = PretrainingSummary(settings.options.max_seq_length)
        counts = np.zeros(partitions, np.int64)
        runs = sorted(item[1], key=lambda run: run["path"])
        for run in runs:
            summary.add(PretrainingSummary(**run["summary"]))
            counts += example_partitions.count_records(run["path"], partitions)
        return {
            "runs": [run["path"] for run in runs],
            "tokens": sorted({run["tokens"] for run in runs}),
            "firsts": np.cumsum([0, *counts[:-1]]).tolist(),
            "summary": dataclasses.asdict(summary),
        }

    plan = workspace.once(PLAN, add_up)
    remove(plan["tokens"])
    yield from enumerate(plan["firsts"])


def _merge(item: tuple[int, int], workspace: Workspace, num_files: int) -> tuple[None, str]:
    """Writes each output file's share of a partition."""
    partition, first = item

    def write(path: str) -> None:
        records = example_partitions.merge_partition(workspace.result(PLAN)["runs"], partition)
        example_partitions.write_shares(path, records, first, num_files)

    return None, workspace.file(f"partition-{partition:08}", write)


def _files(item: tuple[None, Iterable[str]], workspace: Workspace, num_files: int) -> Iterable[int]:
    """Removes the runs, when all partitions are merged, and returns the number of each file."""
    workspace.once("partitions", lambda: sorted(item[1]))
    remove(workspace.result(PLAN)["runs"])
    return range(num_files)


def _write_file(number: int, workspace: Workspace) -> str:
    """Writes an output file of its shares of all partitions."""

    def write(path: str) -> None:
        with open_file(path, "wb") as file:
            for partition in workspace.result("partitions"):
                file.write(read_segment(partition, number))

    return workspace.file(file_name(number), write)


def file_name(number: int) -> str:
    return f"file-{number:08}"


def _array_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
