"""Reads the lines and fields of text files; errors name the file and the line."""

import os
from collections.abc import Iterator

from bert_tf.base.regular_files import open_input
from bert_tf.base.text_lines import UTF8_BOM
from bert_tf.errors import DataError


def read_tsv(path: str | os.PathLike) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the fields of each line; see `read_lines`.

    There is no quoting, as in the GLUE files: each tab separates two fields. An empty line has one
    empty field.

    Raises:
        DataError: If the file is missing or not a regular file, or a line is not UTF-8.
    """
    for number, line in read_lines(path):
        yield number, line.split("\t")


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line, without line ends and byte-order mark.

    Raises:
        DataError: If the file is missing or not a regular file, or a line is not UTF-8.
    """
    try:
        file = open_input(path)
    except OSError as error:
        raise DataError(f"{path} must be a data file. Received: {error.strerror}.") from None
    with file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(UTF8_BOM)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number} must be UTF-8. Received: byte "
                    f"0x{line[error.start]:02x} at position {error.start}. Convert the file first, "
                    "for example with iconv."
                ) from None
            yield number, text.rstrip("\r\n")
