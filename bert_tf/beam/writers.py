"""Writes rows with their answers: JSON lines, CSV, text, Parquet and TFRecord.

A writer is made for one file. `write` takes some rows at a time and returns those that the format
cannot hold, with the reason. In JSON lines, answers are JSON and vectors are lists; in Parquet,
vectors are lists of a fixed size; elsewhere, what is neither a text nor a number is JSON.
"""

import base64
import csv
import dataclasses
import io
import json
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tensorflow.core.example import example_pb2

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.base.json_values import as_json
from bert_tf.beam.shards import CorpusEntry
from bert_tf.errors import DataError, user_error

Failures = list[tuple[CorpusEntry, str]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the files of an output have in common.

    Attributes:
        format: One of `WRITERS`.
        answer: The name of the answer's column.
        schema: For CSV and Parquet, the input's columns (of CSV only their names matter), which
            every row must fit.
    """

    format: str
    answer: str
    schema: pa.Schema | None = None


def _json(value) -> str:
    return json.dumps(as_json(value), ensure_ascii=False, default=_other)


def _other(value):
    """Returns JSON for values of Parquet that it does not have, such as dates and decimals."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def schema_of(rows: Iterable[CorpusEntry]) -> pa.Schema:
    """Returns the columns and types of rows; a column without a value is one of texts.

    Raises `DataError` if a column has values of several types.
    """
    values = {}
    rows = list(rows)
    for row in rows:
        values.update(dict.fromkeys(row.columns))
    fields = []
    for name in values:
        try:
            kind = pa.array([row.columns.get(name) for row in rows]).type
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            expected = "have values of one type for an output of CSV or Parquet"
            received = f"{error}. Write JSON lines instead."
            raise user_error(f"The column {name!r}", expected, received, DataError) from None
        fields.append(pa.field(name, pa.string() if pa.types.is_null(kind) else kind))
    return pa.schema(fields)


class _RowWriter:
    """Writes one row at a time; a subclass says what the bytes of a row are."""

    def __init__(self, file, layout: Layout):
        self.file = file
        self.layout = layout

    def write(self, rows: list[tuple[CorpusEntry, Any]]) -> Failures:
        failures = []
        for row, answer in rows:
            try:
                content = self.content(row.columns, answer)
            except (ValueError, TypeError) as error:  # ValueError: also of UTF-8
                failures.append((row, str(error)))
            else:
                self.file.write(content)
        return failures

    def content(self, columns: dict[str, Any], answer: Any) -> bytes:
        raise NotImplementedError(f"{type(self).__name__} must have `content`.")

    def close(self) -> None:
        self.file.close()


class JsonLinesWriter(_RowWriter):
    """One JSON object per line."""

    def content(self, columns, answer):
        values = {**columns, self.layout.answer: as_json(answer)}
        return (_json(values) + "\n").encode("utf-8")


class TextWriter(_RowWriter):
    """One line per row: the answer as JSON and the texts, separated by tabs."""

    def content(self, columns, answer):
        texts = [value for value in columns.values() if isinstance(value, str)]
        if any(len(text.splitlines()) > 1 or "\t" in text for text in texts):
            raise ValueError("A text must be one line without tabs for an output of text.")
        return ("\t".join([_json(answer), *texts]) + "\n").encode("utf-8")


class CsvWriter(_RowWriter):
    """CSV (RFC 4180) with a header; lines end in a line feed."""

    def __init__(self, file, layout):
        super().__init__(file, layout)
        self._names = [*layout.schema.names, layout.answer]
        file.write(self._line(self._names))

    def content(self, columns, answer):
        _require_columns(columns, self.layout.schema)
        values = {**columns, self.layout.answer: answer}
        return self._line([self._shown(values.get(name)) for name in self._names])

    @staticmethod
    def _shown(value):
        if value is None or isinstance(value, str):
            return value or ""
        return _json(value)

    @staticmethod
    def _line(fields):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(fields)
        return line.getvalue().encode("utf-8")


class TFRecordWriter(_RowWriter):
    """A `tf.train.Example` for each row; vectors are float features."""

    def content(self, columns, answer):
        example = example_pb2.Example()
        for name, value in {**columns, self.layout.answer: answer}.items():
            _set_feature(example.features.feature[name], as_json(value))
        record = example.SerializeToString(deterministic=True)
        length = struct.pack("<Q", len(record))
        return b"".join([length, _checksum(length), record, _checksum(record)])


def _checksum(content):
    return struct.pack("<I", masked(crc32c(content)))


def _set_feature(feature, value):
    values = value if isinstance(value, list) else [value]
    if values and all(type(item) in (int, bool) for item in values):
        feature.int64_list.value.extend(map(int, values))
    elif values and all(isinstance(item, (int, float)) for item in values):
        feature.float_list.value.extend(values)
    elif all(isinstance(item, str) for item in values):
        feature.bytes_list.value.extend(item.encode("utf-8") for item in values)
    elif value is not None:
        feature.bytes_list.value.append(_json(value).encode("utf-8"))


class ParquetWriter:
    """Parquet with the input's columns and the answer: a vector, a number, or JSON."""

    def __init__(self, file, layout: Layout):
        self._file = file
        self._layout = layout
        self._writer = None

    def write(self, rows: list[tuple[CorpusEntry, Any]]) -> Failures:
        if not rows:
            return []
        try:
            table = self._table(rows)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            if len(rows) == 1:
                return [(rows[0][0], str(error))]
            middle = len(rows) // 2
            return self.write(rows[:middle]) + self.write(rows[middle:])
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)
        return []

    def _table(self, rows):
        for row, _ in rows:
            _require_columns(row.columns, self._layout.schema)
        table = pa.Table.from_pylist([row.columns for row, _ in rows], self._layout.schema)
        return table.append_column(self._layout.answer, _column([answer for _, answer in rows]))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.close()


def _column(answers):
    if isinstance(answers[0], np.ndarray):
        values = pa.array(np.concatenate(answers), pa.float32())
        return pa.FixedSizeListArray.from_arrays(values, len(answers[0]))
    if isinstance(answers[0], float):
        return pa.array(answers, pa.float64())
    return pa.array(list(map(_json, answers)), pa.string())


def _require_columns(columns, schema):
    others = columns.keys() - set(schema.names)
    if others:
        raise ValueError(
            f"A row must have only the columns of the first rows: {', '.join(schema.names)}. "
            f"Received also: {', '.join(sorted(others))}"
        )


def write_without_rows(file, layout: Layout, like=None) -> None:
    """Writes a file without rows, and closes it.

    `like` is, for Parquet, a file of the same output that has rows, or None.
    """
    if layout.format == "parquet":
        schema = layout.schema if like is None else pq.read_schema(like)
        pq.write_table(schema.empty_table(), file)
        file.close()
    else:
        WRITERS[layout.format](file, layout).close()


WRITERS: dict[str, Callable] = {
    "jsonl": JsonLinesWriter,
    "csv": CsvWriter,
    "text": TextWriter,
    "parquet": ParquetWriter,
    "tfrecord": TFRecordWriter,
}
OUTPUT_SUFFIXES = {name: ".txt" if name == "text" else f".{name}" for name in WRITERS}
NEED_SCHEMA = ("csv", "parquet")
