"""Reads the rows of Parquet files that strangers may have written.

Checksums of pages are compared, the memory of a batch is bounded (`parquet_pages.py`), and a date
or time that Python cannot represent is left out with a warning.
"""

import logging
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, UserError
from bert_tf.inputs.tables.parquet_pages import read_row_groups, rows_together

_logger = logging.getLogger("bert_tf")

_ERRORS = (ValueError, OverflowError, KeyError, OSError)  # the last two for a time zone
PARQUET_ROWS = 1024  # that are decoded at a time, or fewer if they are large


def import_parquet():
    """Returns the module `pyarrow.parquet`.

    Raises:
        UserError: If pyarrow is not installed.
    """
    return require_package("pyarrow.parquet", ".parquet files")


class ParquetRows:
    """The rows of a Parquet file.

    Args:
        file: The file, opened for reading.

    Attributes:
        names: The names of its columns.
        groups: Its row groups.

    Raises:
        DataError: If the file is not Parquet, or repeats a column or has none.

    Example:
        >>> import pyarrow, pyarrow.parquet
        >>> pyarrow.parquet.write_table(pyarrow.table({"text": ["a film", "no"]}), "texts.parquet")
        >>> with open("texts.parquet", "rb") as file:
        ...     rows = ParquetRows(file)
        ...     list(rows.rows(0))
        [{'text': 'a film'}, {'text': 'no'}]
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._warned = set()
        with _named_errors():
            self._parquet = import_parquet().ParquetFile(file, page_checksum_verification=True)
            self.names = self._parquet.schema_arrow.names
            self.groups = read_row_groups(file)
        if len(set(self.names)) != len(self.names):
            raise DataError(f"Columns must have different names. Received: {self.names}")
        if len(self) and not self.names:
            raise DataError(f"Rows must have columns. Received: {len(self)} rows")

    def __len__(self) -> int:
        return sum(group.num_rows for group in self.groups)

    def rows(
        self, group: int, columns: Collection[str] | None = None
    ) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
        """Yields the rows of a row group; for one whose text is not UTF-8, the error.

        Args:
            group: Its number.
            columns: The columns that are decoded. None: all.

        Raises:
            DataError: If a page is damaged, or a row takes too much memory.
        """
        if not self.groups[group].num_rows:
            return  # without pages; its columns have no places
        names = self.names if columns is None else [name for name in self.names if name in columns]
        schema = self._parquet.schema
        leaves = [
            index
            for index in range(len(schema))
            if any(f"{schema.column(index).path}.".startswith(f"{name}.") for name in names)
        ]
        with _named_errors():
            most = rows_together(self._file, schema, self.groups[group], leaves, PARQUET_ROWS)
            batches = self._parquet.iter_batches(most, row_groups=[group], columns=names)
            for batch in batches:
                names = batch.schema.names
                for values in zip(*map(self._values, names, batch.columns)):
                    errors = [value for value in values if type(value) is UnicodeDecodeError]
                    yield errors[0] if errors else dict(zip(names, values))

    def _values(self, name, column) -> list:
        """Returns the values of a column; for a text that is not UTF-8, the error."""
        try:
            return column.to_pylist()
        except _ERRORS as error:  # of one of them
            if name not in self._warned and not isinstance(error, UnicodeDecodeError):
                self._warned.add(name)
                _logger.warning(
                    "%s: the column %r has a date or time that Python does not have (%s). An "
                    "unknown time zone is read as UTC, another value is left out.",
                    getattr(self._file, "name", "a Parquet file"),
                    name,
                    error,
                )
            return list(map(_value_or_error, column))


def _value_or_error(scalar):
    try:
        return _as_python(scalar)
    except UnicodeDecodeError as error:
        return error


def _as_python(scalar) -> Any:
    """Returns a value of Python; None for a date or time that Python does not have."""
    import pyarrow

    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise
    except _ERRORS:
        kind, types = scalar.type, pyarrow.types
    if types.is_dictionary(kind):
        return _as_python(scalar.value)
    if types.is_struct(kind):
        return {name: _as_python(value) for name, value in scalar.items()}
    if types.is_map(kind):
        return [tuple(map(_as_python, pair.values())) for pair in scalar.values]
    if types.is_nested(kind):
        return [_as_python(value) for value in scalar.values]
    if types.is_timestamp(kind) and kind.tz is not None:
        return _as_python(scalar.cast(pyarrow.timestamp(kind.unit)))  # as it is stored
    return None


class _named_errors:
    """Turns the errors of pyarrow, of which there are many types, into a DataError."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if error is None or isinstance(error, UserError):
            return
        import pyarrow

        if isinstance(error, (pyarrow.ArrowException, OSError, ValueError, MemoryError)):
            raise DataError(str(error) or "not enough memory") from None
