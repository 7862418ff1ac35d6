"""Reads tables of texts (tab-separated, CSV, JSON lines, Parquet), line by line.

Errors name the file and the line.
"""

import csv
import json
import os
import re
from collections.abc import Collection, Iterator
from typing import Any

from bert_tf.base.file_errors import data_error
from bert_tf.base.regular_files import open_input, open_regular
from bert_tf.errors import DataError, require
from bert_tf.inputs.tables.parquet_files import ParquetRows
from bert_tf.inputs.tables.tsv import read_lines, read_tsv

SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")
# A longer field of CSV is an error, as after a quotation mark without its pair: it would have the
# rest of the file. Python's own limit is too short for some documents.
_FIELD_CHARACTERS = 16 * 1024**2
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # as JSON escapes it


def read_table(
    path: str | os.PathLike, suffix: str | None = None, columns: Collection[str] | None = None
) -> Iterator[tuple[int, dict]]:
    """Yields the line number, from 1, and the dictionary of each row.

    In a table with a single column, an empty line is a row with an empty text. Empty lines before
    the header, between JSON objects and in a CSV file with several columns are skipped.

    Args:
        path: A `.csv` (RFC 4180) or `.tsv` file (no quoting) with the names of the columns in its
            first line, or a `.jsonl` file with one object per line, which may have any values, as
            may a `.parquet` file, whose rows count as lines. Its dates and times that Python does
            not have are None, those of an unknown time zone are in UTC; a warning is logged.
        suffix: The format, if the ending of `path` does not say it.
        columns: The columns that are needed. The others of a `.parquet` file are not read if it has
            all of these; those of other files are returned too.

    Raises:
        DataError: If the file has another ending, is missing, not UTF-8 or damaged, repeats a
            column, or a line has more or fewer fields than the header.
        UserError: If the file is Parquet and pyarrow is not installed.
    """
    suffix = suffix or os.path.splitext(os.fspath(path))[1].lower()
    rule = f"must be a file that ends in one of {SUFFIXES}"
    require(suffix in SUFFIXES, rule, DataError, path=str(path))
    if suffix in (".jsonl", ".parquet"):
        yield from _read_json_lines(path) if suffix == ".jsonl" else _read_parquet(path, columns)
        return
    rows = read_tsv(path) if suffix == ".tsv" else _read_csv(path)
    _, header = next((row for row in rows if row[1] not in ([], [""])), (0, []))
    if len(set(header)) != len(header):
        raise DataError(f"{path} must have columns of different names. Received: {header}.")
    for line, fields in rows:
        if not fields and len(header) > 1:
            continue
        fields = fields or [""]
        if len(fields) != len(header):
            expected = f"have {len(header)} fields, as the header"
            raise data_error(path, expected, f"{len(fields)} fields", line)
        yield line, dict(zip(header, fields))


def find_table(directory: str, name: str) -> str:
    """Returns the path of the table `name` in a directory, without a suffix if none exists.

    Raises:
        DataError: If there are several.
    """
    paths = [os.path.join(directory, name + suffix) for suffix in SUFFIXES]
    found = [path for path in paths if os.path.exists(path)]
    if len(found) > 1:
        raise DataError(f"{directory} must have only one file for {name!r}. Received: {found}.")
    return found[0] if found else os.path.join(directory, name)


def _read_parquet(path, columns):
    line = 0
    try:
        with open_regular(path) as file:
            parquet = ParquetRows(file)
            if columns is not None and not set(columns) <= set(parquet.names):
                columns = None  # so that an error can list the columns
            for group in range(len(parquet.groups)):
                for row in parquet.rows(group, columns):
                    if isinstance(row, UnicodeDecodeError):
                        raise DataError(f"a text that is not UTF-8 ({row})")
                    line += 1
                    yield line, row
    except (OSError, DataError) as error:
        received = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise DataError(
            f"{path} must be a Parquet file. Received after row {line}: {received}."
        ) from None


def _read_csv(path):
    try:
        with open_input(path, "r", encoding="utf-8-sig", newline="") as file:
            csv.field_size_limit(_FIELD_CHARACTERS)
            reader = csv.reader(file, strict=True)
            yield from ((reader.line_num, fields) for fields in reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} must be CSV in UTF-8. Received after line {reader.line_num}: {error}."
        ) from None
    except OSError as error:
        raise DataError(f"{path} must be a data file. Received: {error.strerror}.") from None


def require_unicode(text: str, value: Any) -> None:
    """Raises `ValueError` if JSON has a lone surrogate, which could not be written again.

    Args:
        text: The JSON.
        value: What it means.

    Example:
        >>> require_unicode('{"text": "film"}', {"text": "film"})
    """
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")


def _read_json_lines(path):
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            received = type(row).__name__
            require_unicode(line, row)
        except (ValueError, RecursionError) as error:
            row, received = None, error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number} must be a JSON object. Received: {received}.")
        yield number, row
