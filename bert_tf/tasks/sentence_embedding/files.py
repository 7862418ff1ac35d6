"""Reads pairs and triplets of texts for a sentence encoder from tables."""

import os

from bert_tf.base.file_errors import data_error
from bert_tf.errors import DataError
from bert_tf.inputs.tables.table_files import read_table

PAIR_COLUMNS = ("sentence1", "sentence2")
TRIPLET_COLUMNS = ("anchor", "positive", "negative")
LABEL_COLUMNS = ("label", "score")


def read_labelled_pairs(path: str | os.PathLike) -> tuple[tuple[list[str], ...], list]:
    """Reads pairs with a class or a score.

    Args:
        path: A `.tsv` or `.csv` file with a header, or a `.jsonl` file, with the columns
            `sentence1`, `sentence2` and `label` or `score`.

    Returns:
        The two lists of texts, and the labels, which are strings except in `.jsonl` files.

    Raises:
        DataError: If the file cannot be read or is empty, a column is missing or a text is empty.
    """
    columns, labels = ([], []), []
    for line, row in read_table(path):
        _append_texts(columns, row, PAIR_COLUMNS, path, line)
        label = next((row[name] for name in LABEL_COLUMNS if row.get(name) is not None), "")
        if label == "":
            expected = f"have a value in one of the columns {list(LABEL_COLUMNS)}"
            raise data_error(path, expected, sorted(row), line)
        labels.append(label)
    return _checked(columns, path), labels


def read_scored_pairs(
    path: str | os.PathLike, score_scale: float = 1.0
) -> tuple[tuple[list[str], ...], list[float]]:
    """Reads pairs with scores, which are divided by `score_scale`; see `read_labelled_pairs`.

    Raises:
        DataError: See there, or if a score is not in [-score_scale, score_scale].
    """
    columns, labels = read_labelled_pairs(path)
    scores = []
    for number, label in enumerate(labels, start=1):
        try:
            scores.append(float(label) / score_scale)
        except (TypeError, ValueError):
            scores.append(float("nan"))
        if not -1 <= scores[-1] <= 1:
            raise DataError(
                f"{path}, example {number} must have a score in [-{score_scale:g}, "
                f"{score_scale:g}] (the --score_scale of the tool). Received: {label!r}"
            )
    return columns, scores


def read_triplets(path: str | os.PathLike) -> tuple[list[str], ...]:
    """Reads pairs or triplets: two or three lists of texts.

    Args:
        path: See `read_labelled_pairs`, with the columns `anchor`, `positive` and, in all rows or
            in none, `negative`.

    Raises:
        DataError: If the file cannot be read or is empty, a column is missing, a text is empty, or
            only some rows have `negative`.
    """
    columns = ()
    for line, row in read_table(path):
        names = TRIPLET_COLUMNS if "negative" in row else TRIPLET_COLUMNS[:2]
        columns = columns or tuple([] for _ in names)
        if len(names) != len(columns):
            expected = "have `negative` if and only if the other rows have it"
            raise data_error(path, expected, sorted(row), line)
        _append_texts(columns, row, names, path, line)
    return _checked(columns, path)


def _append_texts(columns, row, names, path, line):
    for column, name in zip(columns, names):
        text = row.get(name)
        if not isinstance(text, str) or not text.strip():
            raise DataError(
                f"{path}, line {line} must have a text in `{name}`. Received: "
                + (repr(text) if name in row else f"the columns {sorted(row)}")
            )
        column.append(text)


def _checked(columns, path):
    if not columns or not columns[0]:
        raise DataError(f"{path} must have examples. Received: none")
    return columns
