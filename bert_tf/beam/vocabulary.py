"""Counts the words of a corpus as a Beam pipeline: the counts of the local tool.

Each worker counts the words of a block of text and writes them in parts, by a hash of the word;
then each part is added up over all blocks. A worker holds the distinct words of a block or of a
part, and the main program all distinct words. Between the steps are only names of files.
"""

import collections
import functools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from bert_tf.base.text_lines import FileSpan
from bert_tf.beam.file_access import InputFile, open_file, read_segment, write_segments
from bert_tf.beam.line_formats import (
    BLOCK_BYTES,
    LineFormat,
    file_blocks,
    parsed_lines,
    spread_spans,
    write_spans,
)
from bert_tf.beam.running import run_pipeline, show_progress
from bert_tf.beam.workspace import DeadLetter, Workspace, letters_of_blocks
from bert_tf.text import count_words

NUM_PARTS = 64  # of the distinct words


def count_corpus(
    workspace: Workspace,
    files: Sequence[InputFile],
    line_format: LineFormat,
    normalization: tuple,
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
        normalization: The arguments lowercase, strip_accents, split_on_cjk and segmenter of
            `count_words`.
        options: Beam's `PipelineOptions`.
        keep_going: Whether damaged lines and files are left out.
        max_retries: See `run_pipeline`.
        block_bytes: The text that a worker counts at a time.

    Raises:
        DataError: If there is a damaged line or file, without `keep_going`.
        UserError: If the pipeline fails.
    """
    spans = workspace.path("blocks.jsonl")
    blocks = write_spans(spans, file_blocks(files, block_bytes))
    counting = line_format, normalization, not keep_going
    build = functools.partial(_add_steps, workspace, spans, counting)
    with show_progress(workspace, "counting words", blocks + NUM_PARTS, "counts-", "part-"):
        run_pipeline(build, options, max_retries)
    names = map(_block_name, range(blocks))
    letters = letters_of_blocks(workspace, names, NUM_PARTS, refuse=not keep_going)
    counts = {}
    for part in range(NUM_PARTS):
        with open_file(workspace.result(_part_name(part))) as file:
            counts.update(json.loads(file.read()))
    return counts, letters


def _add_steps(workspace: Workspace, spans: str, options: tuple, pipeline) -> None:
    (
        pipeline
        | "blocks" >> spread_spans(spans)
        | "count words" >> beam.Map(_count_block, workspace, *options)
        | "all blocks" >> beam.GroupByKey()
        | "parts" >> beam.FlatMap(_parts, workspace)
        | "spread parts" >> beam.Reshuffle()
        | "add" >> beam.Map(_add_part, workspace)
    )


def _count_block(
    item: tuple[int, list[FileSpan]],
    workspace: Workspace,
    line_format: LineFormat,
    normalization: tuple,
    stops: bool,
) -> tuple[None, str]:
    """Writes the counts of the words of a block, and a dead letter for each damaged line."""
    number, spans = item

    def write(path: str) -> None:
        letters: list[DeadLetter] = []
        lines = (parsed_lines(span, line_format.texts, letters, stops) for span in spans)
        texts = (text for found in lines for *_, parsed in found for text in parsed or ())
        counts = count_words(texts, *normalization, progress=False)
        parts: list[dict[str, int]] = [{} for _ in range(NUM_PARTS)]
        for word, count in counts.items():
            parts[zlib.crc32(word.encode()) % NUM_PARTS][word] = count
        write_segments(path, [[json.dumps(part).encode()] for part in [*parts, letters]])

    return None, workspace.file(_block_name(number), write)


def _parts(item: tuple[None, Iterable[str]], workspace: Workspace) -> Iterable[int]:
    """Returns the number of each part, when all blocks are counted."""
    workspace.once("blocks", lambda: sorted(item[1]))
    return range(NUM_PARTS)


def _add_part(part: int, workspace: Workspace) -> str:
    """Writes the sum of a part over all blocks."""

    def write(path: str) -> None:
        counts: collections.Counter[str] = collections.Counter()
        for block in workspace.result("blocks"):
            counts.update(json.loads(read_segment(block, part)))
        with open_file(path, "wb") as file:
            file.write(json.dumps(counts).encode())

    return workspace.file(_part_name(part), write)


def _block_name(number: int) -> str:
    return f"counts-{number:08}"


def _part_name(number: int) -> str:
    return f"part-{number:08}"
