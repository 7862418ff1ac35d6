"""Bounds the memory that the rows of a Parquet file take, before pyarrow decodes them.

A few bytes can stand for any number of values: pages are compressed, dictionaries and prefixes
repeat long values, and levels that are counted by runs make long lists. pyarrow trusts what a page
announces. Here the headers of all pages of a row group are read, and of those columns that need it
the dictionary and the repetition levels, so that a batch of rows has a known bound.

    file           = column chunk*  footer (a Thrift struct)  its size (uint32)  "PAR1"
    column chunk   = page*
    page           = header (a Thrift struct in the compact protocol)  content
    content of v1  = [size  repetition levels]  [size  definition levels]  values
    content of v2  = repetition levels  definition levels  values; levels are not compressed

The footer is read here as well, because the classes of pyarrow that describe a column chunk end the
process if its metadata is damaged.

Reference: apache/parquet-format, parquet.thrift and Encodings.md.
"""

import functools
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bert_tf.base.file_errors import data_error
from bert_tf.errors import DataError
from bert_tf.inputs.tables.thrift import CompactReader

# A batch of rows takes about so much, as far as one row does not need more.
BATCH_BYTES = 16 * 2**20
# One row, and one page, may take so much, or `MOST_TIMES` the size of its columns in the file. A
# program that trusts its files can raise these limits.
MOST_BYTES = 64 * 2**20
MOST_TIMES = 100

_VALUE_BYTES = 48  # of a value of a list, in Arrow and in Python
_TAIL = 8  # bytes: the size of the footer and "PAR1"
_FIRST_READ, _MOST_HEADER = 1024, 16 * 2**20  # bytes; the limit is pyarrow's
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3  # PageType
_RLE, _DELTA_BYTE_ARRAY = 3, 7  # Encoding
_CODECS = {0: "uncompressed", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_TOO_LARGE = (
    "Write the table with smaller values, leave the column out, or raise "
    "`bert_tf.inputs.tables.parquet_pages.MOST_BYTES` for a file that you trust"
)


class _Page(NamedTuple):
    """A page: its kind, sizes in bytes and values, and where its content is in the file."""

    kind: int
    size: int
    compressed: int
    values: int
    encoding: int
    header: dict[int, Any]
    start: int


class RowGroup(NamedTuple):
    """A row group: the number of rows, the uncompressed bytes, the metadata of its columns."""

    num_rows: int
    num_bytes: int
    columns: list[dict[int, Any]]


def read_row_groups(file: BinaryIO) -> list[RowGroup]:
    """Reads the row groups of a file, which is opened for reading and ends as Parquet files do.

    Raises:
        DataError: If the footer is damaged.
    """
    end = file.seek(-_TAIL, os.SEEK_END)
    size = int.from_bytes(file.read(4), "little")
    try:
        file.seek(end - size)
        groups = CompactReader(file.read(size)).struct()[4]  # of FileMetaData
        # The columns, bytes and rows of a RowGroup; the metadata of a ColumnChunk.
        found = [RowGroup(group[3], group[2], [chunk[3] for chunk in group[1]]) for group in groups]
        columns = (column for group in found for column in group.columns)
        if all(_are_numbers(group[:2]) for group in found) and all(
            isinstance(column, dict) for column in columns
        ):
            return found
    except (IndexError, KeyError, TypeError, ValueError):
        pass
    raise DataError("A footer must describe row groups. Received: other bytes")


def rows_together(file: BinaryIO, schema, group: RowGroup, columns: list[int], most: int) -> int:
    """Returns how many rows of a row group can be decoded at a time.

    Args:
        file: The file, which is opened for reading.
        schema: Its `pyarrow.parquet.ParquetSchema`.
        group: The row group.
        columns: The numbers of the leaf columns that are decoded.
        most: The largest number of rows.

    Raises:
        DataError: If a page is damaged or announces too many bytes, or a row has too many.
    """
    if any(index >= len(group.columns) for index in columns):
        raise DataError("A row group must have all columns. Received: fewer")
    chunks = [_Chunk(file, group.columns[index], schema.column(index)) for index in columns]
    # Whatever the number of rows is, a page of each column is decoded.
    least = sum(chunk.bytes_of(1) for chunk in chunks)
    largest = max(chunks, key=lambda chunk: chunk.bytes_of(1), default=None)
    _require(f"A row, mostly of {largest}", least, sum(chunk.compressed for chunk in chunks))
    rows = most
    while sum(chunk.bytes_of(rows) for chunk in chunks) > max(BATCH_BYTES, 2 * least):
        rows //= 2
    return rows


def _require(what, size, compressed):
    """Raises a DataError if something takes too many bytes in memory."""
    most = max(MOST_BYTES, MOST_TIMES * compressed)
    if size > most:
        expected = f"not take more than {most:,} bytes"
        raise data_error(what, expected, f"up to {size:,} bytes. {_TOO_LARGE}")


def _are_numbers(values, limit=2**63):
    return all(isinstance(value, int) and 0 <= value < limit for value in values)


class _Chunk:
    """A column of a row group."""

    def __init__(self, file, chunk, column):
        self._file, self._column = file, column
        # Fields of ColumnMetaData: the codec, the size, and the places of the first pages.
        codec, self.compressed, start, dictionary = (chunk.get(field, 0) for field in (4, 7, 9, 11))
        if not _are_numbers((codec, self.compressed, start, dictionary)):
            raise DataError(f"The codec and place of {self} must be numbers. Received: others")
        self._codec = _CODECS.get(codec)
        if 0 < dictionary < start:
            start = dictionary
        pages = list(self._pages(start, start + self.compressed))
        self._data = [page for page in pages if page.kind in (_DATA, _DATA_V2)]
        self._num_values = sum(page.values for page in self._data)
        self._ends = np.cumsum([page.values for page in self._data])
        self._sizes = np.cumsum([0, *(page.size for page in self._data)])
        # The largest value that few bytes can repeat.
        widest = column.length if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
        if column.physical_type == "BYTE_ARRAY":
            sizes = [self._longest_value(page) for page in pages if page.kind == _DICTIONARY]
            sizes += [page.size for page in self._data if page.encoding == _DELTA_BYTE_ARRAY]
            widest = max(sizes, default=0)
        self._value_bytes = widest + _VALUE_BYTES

    def __str__(self):
        return f"the column {self._column.path!r}"

    def bytes_of(self, rows: int) -> int:
        """Returns a bound of the bytes of any `rows` consecutive rows."""
        longest = self._longest_row if self._column.max_repetition_level else 1
        values = min(self._num_values, rows * longest)
        # The values may begin at the end of any page; `last` is the page of the last value.
        last = np.searchsorted(self._ends, self._ends + values - 1)
        last = np.minimum(last + 1, len(self._data))
        pages = np.max(self._sizes[last] - self._sizes[: len(last)], initial=0)
        return int(pages) + values * self._value_bytes

    def _pages(self, position, end) -> Iterator[_Page]:
        while position < end:
            header, length = self._header(position, end)
            kind, size, compressed = (header.get(field) for field in (1, 2, 3))
            fields = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
            data = header.get(fields.get(kind), {}) if isinstance(kind, int) else None
            values = data.get(1, 0) if isinstance(data, dict) else None
            if not _are_numbers((kind, size, compressed, values), 2**31):
                raise DataError(f"A page of {self} must have sizes. Received: others")
            _require(f"A page of {self}", size, compressed)
            encoding = data.get(4 if kind == _DATA_V2 else 2)
            position += length
            yield _Page(kind, size, compressed, values, encoding, data, position)
            position += compressed

    def _header(self, position, end):
        size = _FIRST_READ
        while True:
            content = self._read(position, min(size, end - position))
            reader = CompactReader(content)
            try:
                return reader.struct(), reader.position
            except IndexError:
                if size >= min(_MOST_HEADER, end - position) or len(content) < size:
                    raise DataError(
                        f"A page of {self} must have a header. Received: other bytes"
                    ) from None
                size *= 16

    def _read(self, position, size):
        self._file.seek(position)
        return self._file.read(size)

    def _content(self, page) -> bytes | None:
        """Returns the content of a page, or None if it cannot be decompressed here."""
        import pyarrow

        content = self._read(page.start, page.compressed)
        if self._codec in ("uncompressed", None):
            return content if self._codec else None
        try:
            return pyarrow.decompress(content, page.size, self._codec, asbytes=True)
        except (pyarrow.ArrowException, ValueError, OSError):
            return None

    def _longest_value(self, page) -> int:
        """Returns a bound of the bytes of a value in a dictionary."""
        content = self._content(page) if page.size * self._num_values > BATCH_BYTES else None
        if content is None:
            return page.size
        longest = position = 0
        for _ in range(page.values):
            size = int.from_bytes(content[position : position + 4], "little")
            longest = max(longest, size)
            position += 4 + size
            if position >= len(content):
                break
        return min(longest, page.size)

    @functools.cached_property
    def _longest_row(self) -> int:
        """A bound of the values of one row of a nested column."""
        if self._num_values * self._value_bytes <= BATCH_BYTES:
            return self._num_values
        try:
            return self._decoded_longest_row()
        except IndexError:  # levels that end too early
            return self._num_values

    def _decoded_longest_row(self):
        longest = current = 0
        width = self._column.max_repetition_level.bit_length()
        for page in self._data:
            levels = self._repetition_levels(page)
            if levels is None:
                return self._num_values
            for count, starts in _runs(levels, width, page.values):
                if len(starts):  # a row begins where the level is 0
                    longest = max(longest, current + starts[0], np.diff(starts).max(initial=0))
                    current = count - starts[-1]
                else:
                    current += count
        return int(max(longest, current))

    def _repetition_levels(self, page):
        if page.kind == _DATA_V2:
            size = page.header.get(6, 0)
            is_number = _are_numbers([size])
            return self._read(page.start, min(size, page.compressed)) if is_number else None
        if page.header.get(4) != _RLE:
            return None
        content = self._content(page)
        return content and content[4 : 4 + int.from_bytes(content[:4], "little")]


def _runs(content: bytes, width: int, values: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields runs of levels: how many they are, and the places of those that are 0.

    Levels that are all 0, whose rows have one value each, yield one run only.
    """
    reader = CompactReader(content)
    while values > 0 and reader.position < len(content):
        header = reader.varint()
        if header & 1:  # groups of eight levels, with all their bits
            packed = np.frombuffer(reader.take((header >> 1) * width), np.uint8)
            levels = np.unpackbits(packed, bitorder="little")
            levels = levels[: len(levels) // width * width].reshape(-1, width)[:values]
            count, starts = len(levels), np.flatnonzero(~levels.any(axis=1))
        else:
            count, starts = min(header >> 1, values), np.array([], int)
            if not any(reader.take((width + 7) // 8)):
                values -= count - 1
                count, starts = 1, np.array([0])
        values -= count
        yield count, starts
    yield max(values, 0), np.array([], int)  # of which nothing is known
