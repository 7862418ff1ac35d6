"""Lines and tab-separated files, read strictly: every error names file and line."""

import os
from collections.abc import Iterator

from bert_tf.errors import DataError


def read_tsv(path: str | os.PathLike) -> Iterator[tuple[int, list[str]]]:
    """Yields line numbers, from 1, and the fields of each line that is not empty.

    No quoting, as in the GLUE files: a tab separates, a line end ends.

    Raises:
        DataError: If the file is missing or a line is not UTF-8 (names the byte).
    """
    for number, line in read_lines(path):
        if line:
            yield number, line.split("\t")


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Yields every line with its number, from 1, without its end and without a byte-order mark.

    Raises:
        DataError: If the file is missing or a line is not UTF-8 (names the byte).
    """
    try:
        file = open(path, "rb")
    except OSError as error:
        raise DataError(f"Expected a data file at {path}: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: expected UTF-8, received byte "
                    f"0x{line[error.start]:02x} at position {error.start}. Convert the file first, "
                    "for example with iconv."
                ) from None
            yield number, text.rstrip("\r\n")
