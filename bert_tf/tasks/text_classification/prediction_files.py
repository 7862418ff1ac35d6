"""Reads files of predictions."""

import os
from collections.abc import Sequence

import numpy as np

from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.errors import DataError
from bert_tf.inputs.tables.table_files import read_table
from bert_tf.inputs.tables.tsv import read_tsv
from bert_tf.tasks.text_classification.files import TextExample, note_id


def read_predictions(
    path: str | os.PathLike,
    examples: Sequence[TextExample],
    labels: Sequence[str] | None,
    problem_type: str,
) -> np.ndarray:
    """Reads the predictions for examples, float64 `[n, C]`, or `[n, 1]` for regression.

    Args:
        path: A file with one line per example. Tab-separated, as tools/run_classifier.py writes it:
            the probabilities of the labels, or one number. `.jsonl`: `probabilities` (a list),
            `label` (a name, a list of names or a number) or `score` (a number), and optionally the
            `id` of the example.
        examples, labels, problem_type: The examples, and as in `ClassificationTask`.

    Raises:
        DataError: If a line is missing, is not of that form or repeats an id, or if there are too
            many lines. The message names the file and the line.
    """
    width = 1 if problem_type == REGRESSION else len(labels)
    if os.fspath(path).endswith(".jsonl"):
        rows = _from_json_lines(path, examples, labels, problem_type, width)
    else:
        rows = [_numbers(path, line, fields, width) for line, fields in read_tsv(path)]
    if len(rows) != len(examples):
        raise DataError(
            f"{path} must have {len(examples)} predictions, one per example. Received: {len(rows)}"
        )
    return np.array(rows)


def _from_json_lines(path, examples, labels, problem_type, width):
    rows, ids = [], {}
    for line, row in read_table(path):
        if problem_type == REGRESSION:
            values = _numbers(path, line, [row.get("score", row.get("label"))], width)
        elif "probabilities" in row:
            values = _numbers(path, line, row["probabilities"], width)
        else:
            values = _of_names(path, line, row.get("label"), labels, problem_type)
        if "id" in row:
            note_id(ids, str(row["id"]), path, line)
        rows.append(values)
    if not ids or any(example.id is None for example in examples):
        return rows
    missing = [example.id for example in examples if example.id not in ids]
    if missing or len(ids) != len(rows):
        raise DataError(
            f"{path} must have a prediction for every id. Received: none for "
            f"{len(missing)} ids ({missing[:3]}), {len(rows) - len(ids)} without an id"
        )
    unknown = len(ids) - len(examples)
    if unknown > 0:
        raise DataError(
            f"{path} must have ids of examples. Received: {unknown} ids that no example has"
        )
    of_id = dict(zip(ids, rows))
    return [of_id[example.id] for example in examples]


def _numbers(path, line, values, width):
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != width or not np.isfinite(numbers).all():
        raise DataError(
            f"{path}, line {line} must have {width} numbers. Received: {str(values)[:80]}"
        )
    return numbers


def _of_names(path, line, names, labels, problem_type):
    """Returns 1 for each predicted label and 0 for the others."""
    names = names if problem_type == MULTI_LABEL and isinstance(names, list) else [names]
    names = [str(name) for name in names]
    unknown = [name for name in names if name not in labels]
    if unknown:
        raise DataError(
            f"{path}, line {line} must have labels of {list(labels)}. Received: {unknown}"
        )
    return [float(label in names) for label in labels]
