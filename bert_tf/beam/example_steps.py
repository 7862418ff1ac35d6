"""The steps of a pipeline that makes the examples of chunks, through files in a `Workspace`.

Between the steps are only names of files, never text or examples: the DirectRunner holds all
elements between two steps in memory.

More records than fit into memory are shuffled in parallel. Each pass over a chunk writes its
records as a run, sorted by random keys. The keys are divided into equal partitions, and a partition
of all runs fits into memory: it is sorted by key. All partitions in order are the order of
`create_data.merge_runs`, so record n of it goes to the output file n modulo their number, as the
local tool does it.
"""

import dataclasses
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np

from bert_tf.base.text_lines import FileSpan
from bert_tf.beam.file_access import open_file, read_segment, remove, write_segments
from bert_tf.beam.line_formats import BLOCK_BYTES, LineFormat, spread_spans
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

PARTITION_BYTES = 128 << 20  # of records in memory at a time
# An example takes about 6 bytes per token, a token 4 or 5 bytes of text, and random next segments
# use text twice. Too high an estimate makes partitions smaller.
RECORD_BYTES_PER_TEXT_BYTE = 3
_FRAME_BYTES = 16  # of a TFRecord: its length and two checksums; record_writer.h of TensorFlow
_ITEM = np.dtype([("key", "<u8"), ("size", "<i8")])


def num_partitions(text_bytes: int, dupe_factor: int, partition_bytes: int) -> int:
    """Returns the number of partitions of the records of `dupe_factor` passes over the text."""
    return max(1, -(-text_bytes * dupe_factor * RECORD_BYTES_PER_TEXT_BYTE // partition_bytes))


def write_partitioned_run(
    path: str, keys: Sequence[int], records: Sequence[bytes], partitions: int
) -> None:
    """Writes a run, one segment per partition; `keys` are below 2^64."""
    keys = np.asarray(keys, np.uint64)
    order = np.argsort(keys, kind="stable")
    edges = [2**64 * index // partitions for index in range(1, partitions)]
    splits = [0, *np.searchsorted(keys[order], np.array(edges, np.uint64)), len(keys)]
    segments = []
    for start, end in zip(splits, splits[1:]):
        chosen = order[start:end]
        items = np.empty(len(chosen), _ITEM)
        items["key"] = keys[chosen]
        items["size"] = [len(records[index]) for index in chosen]
        count = np.array([len(chosen)], "<i8")
        segments.append([count.tobytes(), items.tobytes(), *(records[i] for i in chosen)])
    write_segments(path, segments)


def count_records(path: str, partitions: int) -> np.ndarray:
    """Returns the number of records in each partition of a run, int64 `[partitions]`."""
    counts = np.empty(partitions, np.int64)
    with open_file(path) as file:
        table = np.frombuffer(file.read(8 * partitions), "<i8")
        for partition, start in enumerate(table.tolist()):
            file.seek(start)
            counts[partition] = np.frombuffer(file.read(8), "<i8")[0]
    return counts


def merge_partition(paths: Sequence[str], partition: int) -> list[bytes]:
    """Returns the records of a partition of all runs, sorted by key, or in the order of `paths`."""
    keys: list[np.ndarray] = []
    records: list[bytes] = []
    for path in paths:
        content = read_segment(path, partition)
        count = int(np.frombuffer(content, "<i8", 1)[0])
        items = np.frombuffer(content, _ITEM, count, offset=8)
        splits = np.cumsum([8 + items.nbytes, *items["size"]]).tolist()
        records += [content[start:end] for start, end in zip(splits, splits[1:])]
        keys.append(items["key"])
    return [records[place] for place in np.argsort(np.concatenate(keys), kind="stable")]


def write_shares(path: str, records: Sequence[bytes], first: int, num_files: int) -> None:
    """Writes each output file's share of a partition as TFRecords, one segment per output file.

    `first` is the number of its first record among the records of all partitions.
    """
    import tensorflow as tf

    shares = [records[(number - first) % num_files :: num_files] for number in range(num_files)]
    with tempfile.TemporaryDirectory() as folder:
        framed = os.path.join(folder, "records")
        with tf.io.TFRecordWriter(framed) as writer:
            for share in shares:
                for record in share:
                    writer.write(record)
        with open_file(framed) as file:
            write_segments(path, [[file.read(_size(share))] for share in shares])


def _size(share: Sequence[bytes]) -> int:
    return sum(len(record) + _FRAME_BYTES for record in share)


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
        segmenter: See `BertTokenizer`.

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
    partition_bytes: int = PARTITION_BYTES
    block_bytes: int = BLOCK_BYTES
    segmenter: str | None = None

    def __post_init__(self):
        names = ("dupe_factor", "chunk_bytes", "num_files", "partition_bytes", "block_bytes")
        for name in names:
            require(getattr(self, name) >= 1, "must be at least 1", **{name: getattr(self, name)})

    def tokenizer(self):
        """Returns the tokenizer."""
        options = {"errors": self.line_format.errors, "segmenter": self.segmenter}
        return BertTokenizer(list(self.vocabulary), lowercase=self.lowercase, **options)


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
        write_partitioned_run(path, keys, records, self.partitions)
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
            counts += count_records(run["path"], partitions)
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
        records = merge_partition(workspace.result(PLAN)["runs"], partition)
        write_shares(path, records, first, num_files)

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
