"""The lines of text files, of Wikipedia extracts and of JSON lines, as sentences of documents.

- text: one sentence per line, a blank line between documents.
- wiki: the same between `<doc …>` and `</doc>`, as wikiextractor writes it; blank lines are
  ignored.
- json: each line is an object with the text of a document, whose lines are its sentences.

Files of any size are divided into blocks of bytes. A block holds the lines that begin in its spans
of bytes, so each line is in exactly one block.
"""

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from bert_tf.base.text_lines import FileSpan, decode_line, read_raw_lines
from bert_tf.beam.file_access import InputFile, open_file
from bert_tf.beam.workspace import DeadLetter
from bert_tf.errors import DataError, require_one_of
from bert_tf.tasks.pretraining import Chunk

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
        >>> from bert_tf.beam.line_formats import file_blocks
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


LINE_FORMATS = ("text", "wiki", "json")


class LineKind(enum.IntEnum):
    """What a line is."""

    SENTENCE = 0
    END = 1  # of a document, if it is in one
    OTHER = 2
    DOCUMENT = 3  # a whole one


class Line(NamedTuple):
    """What a line means.

    Args:
        kind: What it is.
        sentences: Its sentences.
        text_bytes: How many bytes it would have as text with a blank line after each document.
            They count for the size of chunks, so that all formats give the same chunks.
    """

    kind: LineKind
    sentences: list[str]
    text_bytes: int


@dataclasses.dataclass(frozen=True)
class LineFormat:
    """A format of text files.

    Args:
        name: One of `LINE_FORMATS`.
        errors: What to do with bytes that are not UTF-8: "strict" or "replace".
        json_key: The key of the text in JSON lines.

    Raises:
        UserError: If the name is unknown.

    Example:
        >>> from bert_tf.beam.line_formats import LineFormat
        >>> line = LineFormat("json").parse(b'{"text": "One.\\\\nTwo."}', "a.json", 0)
        >>> line.sentences, line.text_bytes
        (['One.', 'Two.'], 10)
    """

    name: str = "text"
    errors: str = "strict"
    json_key: str = "text"

    def __post_init__(self):
        require_one_of("name", self.name, LINE_FORMATS)

    def parse(self, line: bytes, path: str, position: int) -> Line:
        """Returns what a line means; `path` and `position` are for the error.

        Raises `DataError` if it is not UTF-8 or, of JSON lines, has no text.
        """
        place = f"at byte {position}"
        text = decode_line(line, path, place, self.errors).strip()
        if self.name == "json":
            return self._parse_json(text, path, place) if text else Line(LineKind.OTHER, [], 0)
        if self.name == "wiki":
            if text.startswith("<doc ") and text.endswith(">"):
                return Line(LineKind.END, [], 0)
            if text == "</doc>":
                return Line(LineKind.END, [], 1)
            if not text:
                return Line(LineKind.OTHER, [], 0)
        if text:
            return Line(LineKind.SENTENCE, [text], len(line))
        return Line(LineKind.END, [], len(line))

    def texts(self, line: bytes, path: str, position: int) -> list[str]:
        """Returns the texts of a line, whose words make a vocabulary.

        Raises `DataError` if it is not UTF-8 or, of JSON lines, has no text.
        """
        if self.name != "text":
            return self.parse(line, path, position).sentences
        try:
            return [line.decode().rstrip("\r\n")]
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line at byte {position} must be UTF-8. Received: {error.reason} at byte "
                f"{error.start}."
            ) from None

    def _parse_json(self, text: str, path: str, place: str) -> Line:
        try:
            record = json.loads(text)
            content = record.get(self.json_key) if isinstance(record, dict) else None
            if not isinstance(content, str):
                raise ValueError(f"no text under the key {self.json_key!r}")
            sentences = [line for line in map(str.strip, content.split("\n")) if line]
            size = sum(len(line.encode()) + 1 for line in sentences)  # a lone surrogate: ValueError
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}, line {place} must be JSON with the text of a document, as in "
                f'{{"{self.json_key}": "One sentence.\\nAnother."}}. Received: {error}'
            ) from None
        return Line(LineKind.DOCUMENT if sentences else LineKind.OTHER, sentences, size)

    def documents(self, chunk: Chunk) -> Iterator[list[str]]:
        """Yields the documents of a chunk as lists of sentences, without damaged lines."""
        for span in chunk.spans:
            document: list[str] = []
            for line in read_raw_lines(span.path, span.start, span.end, open_file):
                try:
                    parsed = self.parse(line, span.path, span.start)
                except DataError:  # already reported by the scan
                    continue
                document += parsed.sentences
                if document and parsed.kind in (LineKind.END, LineKind.DOCUMENT):
                    yield document
                    document = []
            if document:
                yield document
