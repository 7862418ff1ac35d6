"""Tables of texts: tab-separated, CSV and JSON lines, read strictly: errors name file and line."""

import csv
import json
import os
from collections.abc import Iterator

from bert_tf.data.tsv import read_tsv
from bert_tf.errors import DataError

SUFFIXES = (".tsv", ".csv", ".jsonl")


def read_table(path: str | os.PathLike) -> Iterator[tuple[int, dict]]:
    """Yields line numbers, from 1, and each row as a dictionary.

    Args:
        path: By its ending a `.csv` (RFC 4180) or `.tsv` file (no quoting), each with the columns'
            names in its first line, or `.jsonl`, an object a line, whose values may be anything.

    Raises:
        DataError: If the ending is another one, the file is missing, not UTF-8 or damaged, or a
            line has more or fewer fields than the header.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in SUFFIXES:
        raise DataError(f"A file that ends in one of {SUFFIXES} was expected. Received: {path}")
    if suffix == ".jsonl":
        yield from _read_json_lines(path)
        return
    rows = read_tsv(path) if suffix == ".tsv" else _read_csv(path)
    header = None
    for line, fields in rows:
        if header is None:
            header = fields
            if len(set(header)) != len(header):
                raise DataError(f"{path}: two columns have the same name. Received: {header}")
        elif len(fields) != len(header):
            raise DataError(
                f"{path}, line {line}: expected {len(header)} fields, as in the header. "
                f"Received: {len(fields)}"
            )
        else:
            yield line, dict(zip(header, fields))


def find_table(directory: str, name: str) -> str:
    """The file `name`.tsv, .csv or .jsonl in a directory; the .tsv if there is none.

    Raises:
        DataError: If there are several: it would be a guess which one is meant.
    """
    paths = [os.path.join(directory, name + suffix) for suffix in SUFFIXES]
    found = [path for path in paths if os.path.exists(path)]
    if len(found) > 1:
        raise DataError(f"One file was expected for {name!r}. Received: {found}")
    return found[0] if found else paths[0]


def _read_csv(path):
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for fields in reader:
                    if fields:
                        yield reader.line_num, fields
            except (csv.Error, UnicodeDecodeError) as error:
                raise DataError(
                    f"{path}, after line {reader.line_num}: expected CSV in UTF-8. "
                    f"Received: {error}"
                ) from None
    except OSError as error:
        raise DataError(f"Expected a data file at {path}: {error.strerror}") from None


def _read_json_lines(path):
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise DataError(
                        f"{path}, line {number}: expected a JSON object. Received: {error}"
                    ) from None
                if not isinstance(row, dict):
                    raise DataError(
                        f"{path}, line {number}: expected a JSON object. "
                        f"Received: {type(row).__name__}"
                    )
                yield number, row
    except OSError as error:
        raise DataError(f"Expected a data file at {path}: {error.strerror}") from None
