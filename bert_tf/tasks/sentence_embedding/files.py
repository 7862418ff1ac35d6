"""Pairs and triplets of texts for a sentence encoder, from table files."""

import os

from bert_tf.data.table_files import read_table
from bert_tf.errors import DataError

PAIR_COLUMNS = ("sentence1", "sentence2")
TRIPLET_COLUMNS = ("anchor", "positive", "negative")
LABEL_COLUMNS = ("label", "score")


def read_labelled_pairs(path: str | os.PathLike) -> tuple[tuple[list[str], ...], list]:
    """Pairs with a class or a score.

    Args:
        path: A `.tsv` or `.csv` file with a header, or `.jsonl`, with the columns `sentence1`,
            `sentence2` and `label` or `score`.

    Returns:
        The two lists of texts, and the labels as the file has them (of tables: strings).

    Raises:
        DataError: If a column is missing or a text is empty; with file and line.
    """
    columns, labels = ([], []), []
    for line, row in read_table(path):
        _append_texts(columns, row, PAIR_COLUMNS, path, line)
        label = next((row[name] for name in LABEL_COLUMNS if row.get(name) is not None), None)
        if label is None or label == "":
            raise DataError(
                f"{path}, line {line}: a column of {list(LABEL_COLUMNS)} was expected. "
                f"Received: {sorted(row)}"
            )
        labels.append(label)
    return _checked(columns, path), labels


def read_scored_pairs(
    path: str | os.PathLike, score_scale: float = 1.0
) -> tuple[tuple[list[str], ...], list[float]]:
    """`read_labelled_pairs` whose labels are numbers, divided by `score_scale`.

    Raises:
        DataError: If one is not a number in [-score_scale, score_scale].
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
                f"{path}, example {number}: a score in [-{score_scale:g}, {score_scale:g}] was "
                f"expected (--score_scale of the tool). Received: {label!r}"
            )
    return columns, scores


def read_triplets(path: str | os.PathLike) -> tuple[list[str], ...]:
    """Texts with a partner and, where the file has the column, one that is none.

    Args:
        path: As in `read_labelled_pairs`, with the columns `anchor`, `positive` and, in every row
            or in none, `negative`.

    Returns:
        Two or three lists of texts.

    Raises:
        DataError: If a column is missing or a text is empty; with file and line.
    """
    columns, names = None, None
    for line, row in read_table(path):
        if columns is None:
            names = TRIPLET_COLUMNS[: 3 if TRIPLET_COLUMNS[2] in row else 2]
            columns = tuple([] for _ in names)
        if (TRIPLET_COLUMNS[2] in row) != (len(names) == 3):
            raise DataError(
                f"{path}, line {line}: `negative` was expected in every row or in none. "
                f"Received: {sorted(row)}"
            )
        _append_texts(columns, row, names, path, line)
    return _checked(columns or ((),), path)


def _append_texts(columns, row, names, path, line):
    for column, name in zip(columns, names):
        text = row.get(name)
        if not isinstance(text, str) or not text.strip():
            raise DataError(
                f"{path}, line {line}: a text was expected in `{name}`. Received: "
                + (repr(text) if name in row else f"the columns {sorted(row)}")
            )
        column.append(text)


def _checked(columns, path):
    if not columns[0]:
        raise DataError(f"{path} holds no examples")
    return columns
