"""Writes tables (tab-separated, CSV, JSON lines, Parquet) block by block, atomically."""

import abc
import contextlib
import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.base.files import atomic_path
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.tables.parquet_files import import_parquet
from bert_tf.inputs.tables.table_files import SUFFIXES


class TableWriter(abc.ABC):
    """An open table. The first rows say which columns it has.

    Args:
        path: The file, for errors.
        new: The path to write to.
    """

    def __init__(self, path: str, new: str):
        self._path = path
        self._new = new

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends rows, dictionaries from columns to values.

        Raises:
            UserError: If the format cannot hold a row.
        """
        if rows:
            self._write(rows)

    @abc.abstractmethod
    def _write(self, rows):
        """Appends at least one row."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the file."""


@contextlib.contextmanager
def open_table(path: str | os.PathLike) -> Iterator[TableWriter]:
    """Opens a new table, which replaces `path` when the block ends without an error.

    Args:
        path: A `.csv`, `.tsv`, `.jsonl` or `.parquet` file. The first two have the names of the
            columns in the first line, and lists and dictionaries as JSON.

    Raises:
        UserError: If the file has another ending, or is Parquet and pyarrow is not installed.

    Example:
        >>> with open_table("answers.csv") as table:
        ...     table.write([{"text": "a good film", "probability": 0.75}])
        >>> print(open("answers.csv").read(), end="")
        text,probability
        a good film,0.75
    """
    path = os.fspath(path)
    kind = _KINDS[require_table(path)]
    if kind is _ParquetWriter:
        import_parquet()
    with atomic_path(path) as new, contextlib.closing(kind(path, new)) as table:
        yield table


def require_table(path: str) -> str:
    """Returns the format that the ending of a path says; raises `UserError` for another."""
    suffix = os.path.splitext(path)[1].lower()
    require(suffix in SUFFIXES, f"must end in one of {SUFFIXES}", UserError, path=path)
    return suffix


class _TextWriter(TableWriter):
    def __init__(self, path, new):
        super().__init__(path, new)
        self._file = open(new, "w", encoding="utf-8", newline="")

    def close(self):
        self._file.close()


class _JsonLinesWriter(_TextWriter):
    def _write(self, rows):
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows)
        self._file.writelines(f"{line}\n" for line in lines)


class _FieldsWriter(_TextWriter):
    """Columns in the order of the first row."""

    def __init__(self, path, new):
        super().__init__(path, new)
        self._names = None

    def _write(self, rows):
        if self._names is None:
            self._names = list(rows[0])
            self._write_fields(self._names)
        known = set(self._names)
        for row in rows:
            if not known.issuperset(row):
                expected = f"have the columns of its first row, {self._names}"
                received = f"a row with {list(row)}. Write a .jsonl file."
                raise user_error(f"{self._path}", expected, received)
            self._write_fields([_as_text(row.get(name)) for name in self._names])


class _CsvWriter(_FieldsWriter):
    def _write_fields(self, fields):
        csv.writer(self._file, lineterminator="\n").writerow(fields)


class _TsvWriter(_FieldsWriter):
    def _write_fields(self, fields):
        for field in fields:
            if any(character in field for character in "\t\n\r"):
                expected = "have fields without tabs and line breaks, because .tsv has no quoting"
                raise user_error(f"{self._path}", expected, f"{field[:60]!r}. Write a .csv file.")
        self._file.write("\t".join(fields) + "\n")


class _ParquetWriter(TableWriter):
    """The types of the columns are those of the first rows."""

    def __init__(self, path, new):
        super().__init__(path, new)
        self._writer = None

    def _write(self, rows):
        import pyarrow

        parquet = import_parquet()
        try:
            if self._writer is None:
                schema = pyarrow.Table.from_pylist(list(rows)).schema
                for index, field in enumerate(schema):
                    if pyarrow.types.is_null(field.type):  # no value yet
                        schema = schema.set(index, field.with_type(pyarrow.string()))
                self._writer = parquet.ParquetWriter(self._new, schema)
            unknown = {name for row in rows for name in row} - set(self._writer.schema.names)
            if unknown:
                raise ValueError(f"new columns {sorted(unknown)}")
            self._writer.write_table(pyarrow.Table.from_pylist(list(rows), self._writer.schema))
        except (TypeError, ValueError) as error:  # pyarrow's errors are subclasses
            expected = "have columns of the types of its first rows"
            raise user_error(f"{self._path}", expected, f"{error}. Write a .jsonl file.") from None

    def close(self):
        if self._writer is None:  # a table without rows
            import pyarrow

            self._writer = import_parquet().ParquetWriter(self._new, pyarrow.schema([]))
        self._writer.close()


def _as_text(value):
    """Returns a value as the text of a field; a missing one is empty."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


_KINDS = {
    ".tsv": _TsvWriter,
    ".csv": _CsvWriter,
    ".jsonl": _JsonLinesWriter,
    ".parquet": _ParquetWriter,
}
