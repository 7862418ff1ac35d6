"""Counts the words of a corpus as a Beam pipeline: the counts of the local tool.

Each worker counts the words of a block of text and writes them in parts, by a hash of the word;
then each part is added up over all blocks. A worker holds the distinct words of a block or of a
part, and the main program all distinct words. Between the steps are only names of files.
"""

import collections
import functools
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from bert_tf.base.text_lines import FileSpan
from bert_tf.beam.dead_letters import DeadLetter, refuse_dead_letters, without_repetitions
from bert_tf.beam.file_access import InputFile, open_file, read_segment, write_segments
from bert_tf.beam.file_blocks import (
    BLOCK_BYTES,
    file_blocks,
    read_spans,
    readable_lines,
    write_spans,
)
from bert_tf.beam.line_formats import LineFormat
from bert_tf.beam.progress import show_progress
from bert_tf.beam.running import run_pipeline
from bert_tf.beam.workspace import Workspace
from bert_tf.errors import DataError
from bert_tf.text import count_words

NUM_PARTS = 64  # of the distinct words
_BLOCKS = "blocks.jsonl"


def count_corpus(
    workspace: Workspace,
    files: Sequence[InputFile],
    line_format: LineFormat,
    normalization: tuple[bool, bool | None, bool],
    options,
    keep_going: bool = False,
    max_retries: int = 3,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[dict[str, int], Iterator[DeadLetter]]:
    """Returns the words of a corpus with their counts, and its dead letters in the workspace.

    Args:
        workspace: Where the work is kept.
        files: The input files.
        line_format: How they are read.
        normalization: The arguments lowercase, strip_accents and split_on_cjk of `count_words`.
        options: Beam's `PipelineOptions`.
        keep_going: Whether damaged lines and files are left out.
        max_retries: See `run_pipeline`.
        block_bytes: The text that a worker counts at a time.

    Raises:
        DataError: If there is a damaged line or file, without `keep_going`.
        UserError: If the pipeline fails.
    """
    blocks = write_spans(workspace.path(_BLOCKS), file_blocks(files, block_bytes))
    count = CountBlock(workspace, line_format, normalization, not keep_going)
    build = functools.partial(_add_steps, workspace, count)
    with show_progress(workspace, "counting words", blocks + NUM_PARTS, "counts-", "part-"):
        run_pipeline(build, options, max_retries)
    found = (letter for number in range(blocks) for letter in _letters(workspace, number))
    letters = without_repetitions(found)
    if not keep_going:
        refuse_dead_letters(letters)
    counts = {}
    for part in range(NUM_PARTS):
        with open_file(workspace.result(_part_name(part))) as file:
            counts.update(json.loads(file.read()))
    return counts, letters


def _add_steps(workspace: Workspace, count: "CountBlock", pipeline: beam.Pipeline) -> None:
    (
        pipeline
        | beam.Create([workspace.path(_BLOCKS)])
        | "blocks" >> beam.FlatMap(read_spans)
        | "spread blocks" >> beam.Reshuffle()
        | "count words" >> beam.ParDo(count)
        | "all blocks" >> beam.GroupByKey()
        | "parts" >> beam.ParDo(_Parts(workspace))
        | "spread parts" >> beam.Reshuffle()
        | "add" >> beam.ParDo(_AddPart(workspace))
    )


class CountBlock(beam.DoFn):
    """Writes the counts of the words of a block, and a dead letter for each damaged line.

    Args:
        workspace: Where to write them.
        line_format, normalization: See `count_corpus`.
        stops: Whether counting a block ends at its first dead letter.
    """

    def __init__(
        self,
        workspace: Workspace,
        line_format: LineFormat,
        normalization: tuple[bool, bool | None, bool],
        stops: bool,
    ):
        self.workspace, self.line_format = workspace, line_format
        self.normalization, self.stops = normalization, stops

    def process(self, item: tuple[int, list[FileSpan]]):
        number, spans = item
        yield None, self.workspace.once(_block_name(number), lambda: self._count(number, spans))

    def _count(self, number, spans) -> str:
        letters: list[DeadLetter] = []
        texts = itertools.chain.from_iterable(self._texts(span, letters) for span in spans)
        counts = count_words(texts, *self.normalization, progress=False)
        parts: list[dict[str, int]] = [{} for _ in range(NUM_PARTS)]
        for word, count in counts.items():
            parts[zlib.crc32(word.encode()) % NUM_PARTS][word] = count
        path = self.workspace.new_path(_block_name(number))
        write_segments(path, [[json.dumps(part).encode()] for part in [*parts, letters]])
        return path

    def _texts(self, span: FileSpan, letters: list[DeadLetter]) -> Iterator[str]:
        for position, line in readable_lines(span, letters):
            if self.stops and letters:
                return
            try:
                yield from self.line_format.texts(line, span.path, position)
            except DataError as error:
                letters.append(DeadLetter.of(span.path, position, line, error))


class _Parts(beam.DoFn):
    """Yields the number of each part, when all blocks are counted."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace

    def process(self, item: tuple[None, Iterable[str]]):
        blocks = sorted(item[1])
        self.workspace.once("blocks", lambda: blocks)
        yield from range(NUM_PARTS)


class _AddPart(beam.DoFn):
    """Writes the sum of a part over all blocks."""

    def __init__(self, workspace: Workspace):
        self.workspace = workspace

    def process(self, part: int):
        yield self.workspace.once(_part_name(part), lambda: self._add(part))

    def _add(self, part) -> str:
        counts: collections.Counter[str] = collections.Counter()
        for block in self.workspace.result("blocks"):
            counts.update(json.loads(read_segment(block, part)))
        path = self.workspace.new_path(_part_name(part))
        with open_file(path, "wb") as file:
            file.write(json.dumps(counts).encode())
        return path


def _letters(workspace: Workspace, number: int) -> Iterator[DeadLetter]:
    path = workspace.result(_block_name(number))
    return (DeadLetter(*fields) for fields in json.loads(read_segment(path, NUM_PARTS)))


def _block_name(number: int) -> str:
    return f"counts-{number:08}"


def _part_name(number: int) -> str:
    return f"part-{number:08}"
