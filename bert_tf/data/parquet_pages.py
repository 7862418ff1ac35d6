"""Bounds the memory that the rows of a Parquet file take, before pyarrow decodes them.

A few bytes can stand for any number of values: pages are compressed, dictionaries and prefixes
repeat long values, and levels that are counted by runs make long lists. pyarrow trusts what a page
announces. Here the headers of all pages of a row group are read, and of those columns that need it
the dictionary and the repetition levels, so that a batch of rows has a known bound.

    column chunk   = page*
    page           = header (a Thrift struct in the compact protocol)  content
    content of v1  = [size  repetition levels]  [size  definition levels]  values
    content of v2  = repetition levels  definition levels  values; levels are not compressed

Reference: apache/parquet-format, parquet.thrift and Encodings.md; apache/thrift,
thrift-compact-protocol.md.
"""

import functools
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bert_tf.errors import DataError

# A batch of rows takes about so much, as far as one row does not need more.
BATCH_BYTES = 32 * 2**20
# One row, and one page, may take so much, or `MOST_TIMES` the size of its columns in the file. A
# program that trusts its files can raise these limits.
MOST_BYTES = 64 * 2**20
MOST_TIMES = 100

_VALUE_BYTES = 48  # of a value of a list, in Arrow and in Python
_FIRST_READ, _MOST_HEADER = 1024, 16 * 2**20  # bytes; the limit is pyarrow's
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3  # PageType
_RLE, _DELTA_BYTE_ARRAY = 3, 7  # Encoding
_MOST_NESTED = 8
_TOO_LARGE = (
    "Write the table with smaller values, leave the column out, or raise "
    "`bert_tf.data.parquet_pages.MOST_BYTES` for a file that you trust"
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


def rows_together(file: BinaryIO, parquet, group: int, columns: list[int], most: int) -> int:
    """Returns how many rows of a row group can be decoded at a time.

    Args:
        file: The file, which is opened for reading.
        parquet: Its `pyarrow.parquet.ParquetFile`.
        group: The number of the row group.
        columns: The numbers of the leaf columns that are decoded.
        most: The largest number of rows.

    Raises:
        DataError: If a page is damaged or announces too many bytes, or a row has too many.
    """
    row_group = parquet.metadata.row_group(group)
    chunks = [
        _Chunk(file, row_group.column(index), parquet.schema.column(index)) for index in columns
    ]
    rows = most
    while rows > 1 and sum(chunk.bytes_of(rows) for chunk in chunks) > BATCH_BYTES:
        rows //= 2
    for chunk in chunks:
        chunk.require(chunk.bytes_of(1), "a row")
    return rows


class _Chunk:
    """A column of a row group."""

    def __init__(self, file, chunk, column):
        self._file, self._column = file, column
        self._codec = chunk.compression
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and 0 < (chunk.dictionary_page_offset or 0) < start:
            start = chunk.dictionary_page_offset
        self._compressed = chunk.total_compressed_size
        pages = list(self._pages(start, start + self._compressed))
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

    def bytes_of(self, rows: int) -> int:
        """Returns a bound of the bytes of any `rows` consecutive rows."""
        longest = self._longest_row if self._column.max_repetition_level else 1
        values = min(self._num_values, rows * longest)
        # From any page to the one with the last of the values; they may begin at its end.
        last = np.searchsorted(self._ends, self._ends + values - 1)
        last = np.minimum(last + 1, len(self._data))
        pages = np.max(self._sizes[last] - self._sizes[: len(last)], initial=0)
        return int(pages) + values * self._value_bytes

    def require(self, size: int, what: str, compressed: int | None = None) -> None:
        """Raises a DataError if so many bytes of a row or a page are too many."""
        most = max(MOST_BYTES, MOST_TIMES * (compressed or self._compressed))
        if size > most:
            raise DataError(
                f"The column {self._column.path!r} must not take more than {most:,} bytes for "
                f"{what}. Received: up to {size:,} bytes. {_TOO_LARGE}"
            )

    def _pages(self, position, end) -> Iterator[_Page]:
        while position < end:
            header, length = self._header(position, end)
            kind, size, compressed = (header.get(field) for field in (1, 2, 3))
            data = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind)) or {}
            values = data.get(1, 0) if isinstance(data, dict) else None
            numbers = (kind, size, compressed, values)
            if not all(isinstance(number, int) and 0 <= number < 2**31 for number in numbers):
                raise DataError(f"A page of {self._column.path!r} must have sizes. Received: none")
            self.require(size, "a page", compressed)
            encoding = data.get(4 if kind == _DATA_V2 else 2)
            position += length
            yield _Page(kind, size, compressed, values, encoding, data, position)
            position += compressed

    def _header(self, position, end):
        size = _FIRST_READ
        while True:
            content = self._read(position, min(size, end - position))
            reader = _Compact(content)
            try:
                return reader.struct(), reader.position
            except IndexError:
                if size >= min(_MOST_HEADER, end - position) or len(content) < size:
                    raise DataError(
                        f"A page of {self._column.path!r} must have a header. Received: other bytes"
                    ) from None
                size *= 16

    def _read(self, position, size):
        self._file.seek(position)
        return self._file.read(size)

    def _content(self, page) -> bytes | None:
        """Returns the content of a page, or None if the codec is unknown to pyarrow."""
        import pyarrow

        content = self._read(page.start, page.compressed)
        if self._codec == "UNCOMPRESSED":
            return content
        try:
            return pyarrow.decompress(content, page.size, self._codec.lower(), asbytes=True)
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
            return self._read(page.start, min(page.header.get(6, 0), page.compressed))
        if page.header.get(4) != _RLE:
            return None
        content = self._content(page)
        return content and content[4 : 4 + int.from_bytes(content[:4], "little")]


def _runs(content: bytes, width: int, values: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields runs of levels: how many they are, and the places of those that are 0.

    Of levels that are all 0, whose rows have one value each, only one is yielded.
    """
    reader = _Compact(content)
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


class _Compact:
    """Reads Thrift's compact protocol. What ends too early is an IndexError."""

    def __init__(self, content: bytes):
        self._content = content
        self.position = 0

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self._content):
            raise IndexError
        return self._content[start : self.position]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                return value

    def struct(self, level: int = 0) -> dict[int, Any]:
        """Returns the fields by id; bytes and containers are None."""
        fields, field = {}, 0
        while head := self.take(1)[0]:
            field = field + (head >> 4) if head >> 4 else self._signed()
            fields[field] = self._value(head & 15, level)
        return fields

    def _signed(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def _value(self, kind, level, in_list=False):
        if level > _MOST_NESTED:
            raise IndexError
        if kind in (1, 2):
            return self.take(1) == b"\1" if in_list else kind == 1
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 12:
            return self.struct(level + 1)
        if kind in (3, 7):
            self.take(1 if kind == 3 else 8)
        elif kind == 8:
            self.take(self.varint())
        elif kind in (9, 10):
            head = self.take(1)[0]
            for _ in range(head >> 4 if head >> 4 < 15 else self.varint()):
                self._value(head & 15, level + 1, True)
        elif kind == 11:
            size = self.varint()
            kinds = self.take(1)[0] if size else 0
            for _ in range(size):
                self._value(kinds >> 4, level + 1, True)
                self._value(kinds & 15, level + 1, True)
        else:
            raise IndexError
        return None
