"""What bert-tf predict reads: rows of lines or tables, a block at a time."""

import contextlib
import itertools
import os
from typing import NamedTuple

from bert_tf.errors import DataError, UserError, user_error
from bert_tf.inputs.tables.parquet_files import ParquetRows
from bert_tf.inputs.tables.table_files import SUFFIXES, read_table
from bert_tf.inputs.tables.tsv import read_tsv
from bert_tf.tools.common.flag_table import FLAGS

STDIN = "-"
_COUNTED_BYTES = 2**20


class Row(NamedTuple):
    """An example.

    Attributes:
        line: The number of its line, or of its row in a Parquet file.
        texts: Its texts.
        columns: All columns of its row, by name.
    """

    line: int
    texts: tuple[str, ...]
    columns: dict


def source_name() -> str:
    """Returns the name of the input for errors."""
    return "--text" if FLAGS.text else FLAGS.input_file


def blocks_of_rows(size: int):
    """Yields lists of at most `size` rows, which all have as many texts as the first.

    Raises:
        UserError: If there are no rows, or a row lacks a text or has more or fewer than the first.
        DataError: If the file is damaged; the line is in the message.
    """
    rows = _checked(_rows())
    block = list(itertools.islice(rows, size))
    if not block:
        raise UserError(f"{source_name()} must be a file with texts. Received: no text")
    while block:
        yield block
        block = list(itertools.islice(rows, size))


def about_how_many_rows() -> int | None:
    """Returns the number of lines of --input_file, for a progress bar; None if it is no file."""
    path = FLAGS.input_file
    if path is None or not os.path.isfile(path):
        return None
    if path.lower().endswith(".parquet"):
        with (
            contextlib.suppress(DataError),
            open(path, "rb") as file,
        ):  # its reader says what is wrong
            return len(ParquetRows(file))
        return None
    with open(path, "rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(_COUNTED_BYTES), b""))


def _rows():
    by_name = FLAGS["text_column"].present or FLAGS["pair_column"].present
    if by_name and not source_name().lower().endswith(SUFFIXES):
        expected = f"be a {', '.join(SUFFIXES)} file with --text_column and --pair_column"
        received = f"{source_name()}, which is read as lines of texts"
        raise user_error("--input_file", expected, received)
    if FLAGS.text:
        return _of_fields(enumerate((text.split("\t") for text in FLAGS.text), start=1))
    if FLAGS.input_file == STDIN:
        return _of_fields(read_tsv("/dev/stdin"))
    if FLAGS.input_file.lower().endswith(SUFFIXES):
        return _of_table()
    return _of_fields(read_tsv(FLAGS.input_file))


def _of_fields(lines):
    for line, fields in lines:
        names = ["text"] if len(fields) == 1 else [f"text_{n}" for n in range(1, len(fields) + 1)]
        yield Row(line, tuple(fields), dict(zip(names, fields)))


def _of_table():
    names = [FLAGS.text_column] + ([FLAGS.pair_column] if FLAGS.pair_column else [])
    for line, row in read_table(FLAGS.input_file):
        for name in names:
            if not isinstance(row.get(name), str):
                raise UserError(
                    f"{FLAGS.input_file}, line {line} must have a text in the column {name!r}. "
                    f"Received: {row.get(name)!r}. The columns are {', '.join(row)}; set "
                    "--text_column and --pair_column. A file of lines without a header must have "
                    "another ending, such as .txt."
                )
        yield Row(line, tuple(row[name] for name in names), row)


def _checked(rows):
    width = None
    for row in rows:
        width = width or len(row.texts)
        if len(row.texts) != width:
            expected = f"be {width} tab-separated texts, as the first"
            raise user_error(f"{source_name()}, line {row.line}", expected, len(row.texts))
        yield row
