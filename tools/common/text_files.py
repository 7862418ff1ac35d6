"""Finds and reads files with texts."""

import glob
import os

from bert_tf.base.file_errors import data_error
from bert_tf.errors import DataError, UserError
from bert_tf.inputs.tables.tsv import read_lines, read_tsv


def find_files(patterns):
    """Returns the files that the paths and glob patterns of --input_file match."""
    paths = []
    for pattern in patterns:
        is_path = os.path.exists(pattern) or not glob.has_magic(pattern)  # names may have brackets
        found = [pattern] if is_path else sorted(glob.glob(pattern))
        if not found:
            raise UserError(f"--input_file must match at least one file. Received: {pattern!r}")
        paths += found
    for path in paths:
        if not os.path.isfile(path):
            raise UserError(f"--input_file must be text files. Received: {path}")
    return paths


def read_single_texts(path):
    """Reads a file with one text per line; tabs are part of the text, and lines may be empty."""
    texts = [text for _, text in read_lines(path)]
    if not texts:
        raise DataError(f"{path} must be a file with texts. Received: no text")
    return texts


def read_texts(path, width=None):
    """Reads a list of texts, one per line, or two lists of pairs, which a tab separates.

    Empty lines are skipped. `width` is the number of texts per line; by default that of the first
    line, 1 or 2.
    """
    rows = [(line, fields) for line, fields in read_tsv(path) if fields != [""]]
    if not rows:
        raise DataError(f"{path} must be a file with texts. Received: no text")
    width = width or min(2, len(rows[0][1]))
    for line, fields in rows:
        if len(fields) != width:
            raise data_error(path, f"be {width} tab-separated texts", len(fields), line)
    columns = tuple([fields[place] for _, fields in rows] for place in range(width))
    return columns if width == 2 else columns[0]
