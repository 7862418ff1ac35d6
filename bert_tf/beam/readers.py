"""Reads the rows of a part of a corpus; what cannot be read becomes a dead letter.

Files are read as streams, and each row has its position in its file: of a file of lines and of a
TFRecord file the byte where the row begins (after decompression), of a Parquet file the number of
the row, from 0. Damage costs the row that it is in. Where no next row can be found, as after a
wrong length in a TFRecord file, one dead letter is for the rest of the file.

Reference: tensorflow/core/lib/io/record_writer.h (the format of TFRecord files); tf.train.Example.
"""

import bz2
import contextlib
import csv
import dataclasses
import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.example import example_pb2

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.base.text_lines import UTF8_BOM
from bert_tf.beam.file_access import open_file
from bert_tf.beam.shards import CorpusEntry, FileRange
from bert_tf.beam.workspace import DeadLetter
from bert_tf.errors import DataError
from bert_tf.inputs import ParquetRows, require_unicode

_LENGTH_BYTES, _CHECKSUM_BYTES = 8, 4
_MOST_POSITION = 2**62  # in a file
_MAX_RECORD_BYTES = 64 * 2**20  # a few compressed bytes can be a long record


def read_parquet(part: FileRange) -> Iterator[CorpusEntry | DeadLetter]:
    """Yields the rows of the row groups of a part, some at a time.

    A damaged row group yields the rows before the damage and one dead letter for the others. A file
    that is not Parquet is one dead letter.
    """
    with open_file(part.path) as file:
        try:
            parquet = ParquetRows(file)
        except DataError as error:
            message = f"{part.path} must be a Parquet file. Received: {error}"
            yield DeadLetter.of(part.path, None, "", message)
            return
        sizes = [group.num_rows for group in parquet.groups]
        row = sum(sizes[: part.start])
        for group in range(part.start, len(sizes) if part.stop is None else part.stop):
            end = row + sizes[group]
            try:
                for columns in parquet.rows(group):
                    if isinstance(columns, UnicodeDecodeError):
                        message = f"Texts must be UTF-8. Received: {columns}"
                        yield DeadLetter.of(part.path, row, "", message)
                    else:
                        yield CorpusEntry(part.path, row, columns)
                    row += 1
            except DataError as error:
                message = f"Row group {group} must not be damaged. Received: {error}"
                yield DeadLetter.of(part.path, row, f"rows {row} to {end - 1}", message)
            row = end


def read_tfrecord(path: str, file) -> Iterator[CorpusEntry | DeadLetter]:
    """Yields the features of each `tf.train.Example` of a file.

    A record with a wrong checksum is a dead letter, and reading goes on after it. After a wrong
    length, no other record can be found, and one dead letter is for the rest of the file.
    """
    position = 0
    while head := file.read(_LENGTH_BYTES + _CHECKSUM_BYTES):
        length = int.from_bytes(head[:_LENGTH_BYTES], "little")
        if not _is_intact(head, _LENGTH_BYTES):
            message = "A record must begin with its length and the checksum of that. Received: "
            message += "others" if len(head) == _LENGTH_BYTES + _CHECKSUM_BYTES else "a cut file"
            yield DeadLetter.of(path, position, "all after this position", message)
            return
        if length > _MAX_RECORD_BYTES:
            message = f"A record must have at most {_MAX_RECORD_BYTES} bytes. Received: {length}"
            yield DeadLetter.of(path, position, "", message)
            position += len(head) + length + _CHECKSUM_BYTES
            if position > _MOST_POSITION:
                return
            file.seek(position)
            continue
        record = file.read(length + _CHECKSUM_BYTES)
        if len(record) < length + _CHECKSUM_BYTES:
            message = f"A record must have {length} bytes. Received: a file that ends before"
            yield DeadLetter.of(path, position, record, message)
            return
        if _is_intact(record, length):
            yield _row_of(path, position, record[:length])
        else:
            message = "A record must have the checksum that is stored after it. Received: another"
            yield DeadLetter.of(path, position, record[:length], message)
        position += len(head) + len(record)


def _is_intact(content, length):
    """Returns whether the first bytes have the checksum that follows them."""
    stored = content[length : length + _CHECKSUM_BYTES]
    return masked(crc32c(content[:length])) == int.from_bytes(stored, "little")


def _row_of(path, position, record):
    try:
        features = example_pb2.Example.FromString(record).features.feature
        columns = {name: _value(feature) for name, feature in sorted(features.items())}
        return CorpusEntry(path, position, columns)
    except DecodeError as error:
        message = f"A record must be a tf.train.Example. Received: {error}"
    except UnicodeDecodeError as error:
        message = f"The features of a record must be numbers or UTF-8. Received: {error}"
    return DeadLetter.of(path, position, record, message)


def _value(feature) -> Any:
    """Returns the value of a feature, a list if it has none or several."""
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    values = list(getattr(feature, kind).value)
    if kind == "bytes_list":
        values = [value.decode("utf-8") for value in values]
    return values[0] if len(values) == 1 else values


MAX_ROW_BYTES = 16 * 1024**2  # a longer line or CSV row is a dead letter, so memory is bounded
_DECOMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MOST_NESTED = 64  # lists and objects of a JSON value
# What reading raises: of the file system, and of damaged compressed files.
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def read_range(
    part: FileRange, names: tuple[str, ...] = ("text",)
) -> Iterator[CorpusEntry | DeadLetter]:
    """Yields the rows of a part of a file, and dead letters for what is damaged.

    Args:
        part: The part.
        names: The columns of a text file: its lines, or with several names the fields of each
            line, separated by tabs.

    Example:
        >>> from bert_tf.beam.readers import read_range
        >>> from bert_tf.beam.shards import FileRange
        >>> row = next(read_range(FileRange("corpus/films.txt", "text")))
        >>> row.source, row.position, sorted(row.columns)
        ('corpus/films.txt', 0, ['text'])
    """
    position = None
    try:
        if part.format == "parquet":
            yield from read_parquet(part)
            return
        with _opened(part.path) as file:
            if part.format == "tfrecord":
                rows = read_tfrecord(part.path, file)
            else:
                rows = _READERS[part.format](part, file, names)
            for row in rows:
                position = row.position
                yield row
    except _READ_ERRORS as error:
        reason = str(error) or type(error).__name__
        message = f"{part.path} must be readable to its end. Received: {reason}"
        yield DeadLetter.of(part.path, position, "all after the row at this position", message)


@contextlib.contextmanager
def _opened(path):
    with open_file(path) as file:
        for suffix, decompressed in _DECOMPRESSED.items():
            if path.lower().endswith(suffix):
                with decompressed(file) as content:
                    yield content
                return
        yield file


@dataclasses.dataclass(frozen=True)
class _Line:
    position: int
    content: bytes  # with its line end
    is_whole: bool = True  # False if it was longer than `MAX_ROW_BYTES`


class _Lines:
    """The lines of a file that begin in a range of bytes; some may be put back."""

    def __init__(self, file, start: int = 0, stop: int | None = None):
        self._file = file
        self._stop = stop
        self._put_back = []
        self._position = start
        if start:  # a line that begins before belongs to the range before
            file.seek(start - 1)
            self._position = start - 1
            self._read()

    def next(self) -> _Line | None:
        if self._put_back:
            return self._put_back.pop()
        if self._stop is not None and self._position >= self._stop:
            return None
        return self._read()

    def put_back(self, lines: list[_Line]) -> None:
        self._put_back += reversed(lines)

    def __iter__(self):
        return iter(self.next, None)

    def _read(self):
        position, content = self._position, self._file.readline(MAX_ROW_BYTES)
        self._position += len(content)
        if not content:
            return None
        is_whole = len(content) < MAX_ROW_BYTES or content.endswith(b"\n")
        end = content
        while end and not end.endswith(b"\n"):
            end = self._file.readline(MAX_ROW_BYTES)
            self._position += len(end)
        if position == 0:
            content = content.removeprefix(UTF8_BOM)
        return _Line(position, content, is_whole)


def _rows_of_lines(path, lines, convert) -> Iterator[Any]:
    """Yields what `convert` makes of each line and its text without the line end, unless None.

    A line that is too long or not UTF-8 is a dead letter.
    """
    for line in lines:
        if not line.is_whole:
            message = f"A line must have at most {MAX_ROW_BYTES} bytes. Received: a longer one"
            yield DeadLetter.of(path, line.position, line.content, message)
            continue
        try:
            row = convert(line, line.content.decode("utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            message = (
                "A line must be UTF-8. Received: byte "
                f"0x{line.content[error.start]:02x} at position {error.start} of the line"
            )
            row = DeadLetter.of(path, line.position, line.content, message)
        if row is not None:
            yield row


def _read_text(part, file, names):
    def convert(line, text):
        fields = text.split("\t") if len(names) > 1 else [text]
        if len(fields) == len(names):
            return CorpusEntry(part.path, line.position, dict(zip(names, fields)))
        message = f"A line must be {len(names)} tab-separated texts. Received: {len(fields)}"
        return DeadLetter.of(part.path, line.position, line.content, message)

    return _rows_of_lines(part.path, _Lines(file, part.start, part.stop), convert)


def _read_json_lines(part, file, names):
    def convert(line, text):
        if not text.strip():
            return None
        try:
            columns = json.loads(text)
            if not isinstance(columns, dict):
                raise ValueError(type(columns).__name__)
            _require_encodable(text, columns)
        except (ValueError, RecursionError) as error:
            message = f"A line must be a JSON object. Received: {error}"
            return DeadLetter.of(part.path, line.position, line.content, message)
        return CorpusEntry(part.path, line.position, columns)

    return _rows_of_lines(part.path, _Lines(file, part.start, part.stop), convert)


def _require_encodable(text, columns):
    """Raises `ValueError` for a value at which Beam, which encodes elements, would fail."""
    require_unicode(text, columns)
    if text.count("[") + text.count("{") > _MOST_NESTED:
        depth, level = 0, [columns]
        while level := [part for value in level for part in _parts(value)]:
            depth += 1
            if depth > _MOST_NESTED:
                raise ValueError(f"more than {_MOST_NESTED} levels of lists and objects")


def _parts(value):
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _read_tsv(part, file, names):
    with _opened(part.path) as other:  # the range may begin after the header
        rows = _rows_of_lines(part.path, _Lines(other), lambda line, text: text and (line, text))
        first = next(filter(None, rows), None)
    if first is None:
        return
    header = first if isinstance(first, DeadLetter) else first[1].split("\t")
    problem = _header_problem(part.path, header)
    if problem is not None:
        if part.start == 0:  # one dead letter for the file
            yield problem
        return

    def convert(line, text):
        if line.position > first[0].position:
            return _row(part.path, line.position, header, text.split("\t"), line.content)
        return None

    yield from _rows_of_lines(part.path, _Lines(file, part.start, part.stop), convert)


def _read_csv(part, file, names):
    rows = _csv_rows(part.path, _Lines(file))
    # Empty lines are no header, and a row only of a table with a single column.
    header = next((row for row in rows if isinstance(row, DeadLetter) or row[1]), None)
    if header is None:
        return
    header = header if isinstance(header, DeadLetter) else header[1]
    problem = _header_problem(part.path, header)
    if problem is not None:
        yield problem
        return
    for row in rows:
        if isinstance(row, DeadLetter):
            yield row
            continue
        position, fields, content = row
        if fields or len(header) == 1:
            yield _row(part.path, position, header, fields or [""], content)


def _header_problem(path, header):
    """Returns the dead letter of a file whose header is damaged or repeats a column, or None."""
    if isinstance(header, DeadLetter):
        return header._replace(position=None, error=f"The header is damaged. {header.error}")
    if len(set(header)) == len(header):
        return None
    message = f"{path} must have columns of different names. Received: {header}"
    return DeadLetter.of(path, None, ",".join(header), message)


def _row(path, position, header, fields, content):
    if len(fields) == len(header):
        return CorpusEntry(path, position, dict(zip(header, fields)))
    message = f"A row must have {len(header)} fields, as the header. Received: {len(fields)}"
    return DeadLetter.of(path, position, content, message)


def _csv_rows(path, lines) -> Iterator[DeadLetter | tuple[int, list[str], bytes]]:
    """Yields the position, fields and bytes of each row, which may have several lines.

    After an error in a row of several lines only its first line is given up: its quotation mark
    may be the error, and the other lines rows of their own.
    """
    csv.field_size_limit(MAX_ROW_BYTES)
    while True:
        taken = []
        try:
            # A reader for each row, which has no state of its own after an error.
            fields = next(csv.reader(_decoded(lines, taken), strict=True), None)
            content = b"".join(line.content for line in taken)
            if fields is None:
                return
            "".join(fields).encode("utf-8")
            yield taken[0].position, fields, content
        except UnicodeEncodeError:  # of what `surrogateescape` decoded
            message = "A row must be UTF-8. Received: other bytes"
            yield DeadLetter.of(path, taken[0].position, content, message)
        except csv.Error as error:
            first, *others = taken
            lines.put_back(others)
            message = f"A row must be CSV (RFC 4180). Received: {error}"
            yield DeadLetter.of(path, first.position, first.content, message)


def _decoded(lines, taken):
    """Yields lines as text, and puts each into the list `taken`."""
    size = 0
    for line in lines:
        taken.append(line)
        size += len(line.content)
        if size > MAX_ROW_BYTES or not line.is_whole:
            raise csv.Error(f"more than {MAX_ROW_BYTES} bytes")
        yield line.content.decode("utf-8", "surrogateescape")


_READERS = {"text": _read_text, "jsonl": _read_json_lines, "tsv": _read_tsv, "csv": _read_csv}
