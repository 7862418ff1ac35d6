"""Divides files of any size into blocks of bytes, which are read line by line.

A block holds the lines that begin in its spans of bytes, so each line is in exactly one block.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from bert_tf.base.text_lines import FileSpan
from bert_tf.beam.dead_letters import DeadLetter
from bert_tf.beam.file_access import InputFile, open_file
from bert_tf.errors import DataError

BLOCK_BYTES = 64 << 20
_SKIPPED_BYTES = 1 << 20  # of the line before a block, at a time


class Block(NamedTuple):
    """Spans of bytes, of one large file or of several small ones."""

    number: int
    spans: list[FileSpan]


def file_blocks(files: Iterable[InputFile], block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yields the blocks of files, in order; an empty file is in a block too.

    Example:
        >>> from bert_tf.beam.file_access import InputFile
        >>> from bert_tf.beam.file_blocks import file_blocks
        >>> files = [InputFile("a", 250), InputFile("b", 30)]
        >>> for block in file_blocks(files, block_bytes=100):
        ...     print(block.number, [(span.path, span.start, span.end) for span in block.spans])
        0 [('a', 0, 100)]
        1 [('a', 100, 200)]
        2 [('a', 200, 250), ('b', 0, 30)]
    """
    number, spans, room = 0, [], block_bytes
    for path, size, _ in files:
        start = 0
        while True:
            end = min(size, start + room)
            spans.append(FileSpan(path, start, end))
            room -= end - start
            start = end
            if room == 0:
                yield Block(number, spans)
                number, spans, room = number + 1, [], block_bytes
            if start >= size:
                break
    if spans:
        yield Block(number, spans)


def lines_of(span: FileSpan) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that begin in a span, with their positions in the file.

    Raises `OSError` if the file cannot be read.
    """
    position = span.start
    with open_file(span.path) as file:
        if position:  # the line that the byte before is in
            file.seek(position - 1)
            position -= 1
            while part := file.readline(_SKIPPED_BYTES):
                position += len(part)
                if part.endswith(b"\n"):
                    break
        while position < span.end and (line := file.readline()):
            yield position, line
            position += len(line)


def parsed_lines(
    span: FileSpan, parse: Callable, letters: list[DeadLetter], stops: bool
) -> Iterator[tuple[int, bytes, Any]]:
    """Yields the lines of a span as `lines_of`, each with `parse(line, path, position)`.

    That is None for a line that is damaged. It is added to `letters`, as is an error of the file.
    With `stops`, nothing is yielded after that.
    """
    end = None
    try:
        for position, line in lines_of(span):
            end, parsed = position + len(line), None
            try:
                parsed = parse(line, span.path, position)
            except DataError as error:
                letters.append(DeadLetter.of(span.path, position, line, error))
            if letters and stops:
                return
            yield position, line, parsed
    except OSError as error:
        letters.append(DeadLetter.of(span.path, end, "", f"the file cannot be read: {error}"))


def write_spans(path: str, numbered: Iterable[tuple[int, list[FileSpan]]]) -> int:
    """Writes numbered lists of spans to a file, which workers read, and returns how many."""
    count = 0
    with open_file(path, "wb") as file:
        for number, spans in numbered:
            line = json.dumps([number, [dataclasses.astuple(span) for span in spans]])
            file.write(f"{line}\n".encode())
            count += 1
    return count


@beam.ptransform_fn
def spread_spans(pipeline: beam.Pipeline, path: str):
    """The numbered lists of spans of a file of `write_spans`, spread over the workers."""
    return pipeline | beam.Create([path]) | beam.FlatMap(_read_spans) | beam.Reshuffle()


def _read_spans(path: str) -> Iterator[tuple[int, list[FileSpan]]]:
    with open_file(path) as file:
        for line in file:
            number, spans = json.loads(line)
            yield number, [FileSpan(*span) for span in spans]
