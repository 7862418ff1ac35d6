"""Predictions in files, put beside the examples that they belong to."""

import os
from collections.abc import Sequence

import numpy as np

from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.data.table_files import read_table
from bert_tf.data.tsv import read_tsv
from bert_tf.errors import DataError
from bert_tf.tasks.text_classification.files import TextExample


def read_predictions(
    path: str | os.PathLike,
    examples: Sequence[TextExample],
    labels: Sequence[str] | None,
    problem_type: str,
) -> np.ndarray:
    """Reads predictions for examples.

    Args:
        path: The tab-separated file that tools/run_classifier.py writes: a line an example, a
            probability for each label in their order, or one number. Or `.jsonl`: a line an example
            with `probabilities` (a list), `label` (a name, a list of names or a number) or `score`
            (a number), and optionally `id`, by which it is found if the examples have ids.
        examples: What was predicted.
        labels: The labels in the order of their ids; None for regression.
        problem_type: As in `ClassificationTask`.

    Returns:
        Probabilities float64 `[n, C]`, for regression numbers `[n, 1]`.

    Raises:
        DataError: If a line is missing or too many, repeats an id, or is not of that form; with
            file and line.
    """
    width = 1 if problem_type == REGRESSION else len(labels)
    if os.fspath(path).endswith(".jsonl"):
        rows = _from_json_lines(path, examples, labels, problem_type)
    else:
        rows = [(line, _numbers(path, line, fields, width)) for line, fields in read_tsv(path)]
    if len(rows) != len(examples):
        raise DataError(
            f"{path}: {len(examples)} predictions were expected, one an example. "
            f"Received: {len(rows)}"
        )
    return np.array([values for _, values in rows])


def _from_json_lines(path, examples, labels, problem_type):
    width = 1 if problem_type == REGRESSION else len(labels)
    rows, ids = [], {}
    for line, row in read_table(path):
        if "probabilities" in row and problem_type != REGRESSION:
            values = _numbers(path, line, row["probabilities"], width)
        elif problem_type == REGRESSION:
            values = _numbers(path, line, [row.get("score", row.get("label"))], 1)
        else:
            values = _of_names(path, line, row.get("label"), labels, problem_type)
        if "id" in row:
            name = str(row["id"])
            if ids.setdefault(name, line) != line:
                raise DataError(
                    f"{path}, line {line}: expected an id of its own. Received: {name!r}, which "
                    f"line {ids[name]} has"
                )
        rows.append((line, values))
    if ids and all(example.id is not None for example in examples):
        of_id = {name: rows[index] for index, name in enumerate(ids)}
        missing = [example.id for example in examples if example.id not in of_id]
        if missing or len(of_id) != len(rows):
            raise DataError(
                f"{path}: a prediction was expected for every id. Received: none for "
                f"{len(missing)} ids ({missing[:3]}), {len(rows) - len(of_id)} without an id"
            )
        unknown = len(of_id) - len(examples)
        if unknown > 0:
            raise DataError(f"{path}: {unknown} predictions have an id that no example has")
        return [of_id[example.id] for example in examples]
    return rows


def _numbers(path, line, values, width):
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != width or not np.isfinite(numbers).all():
        raise DataError(
            f"{path}, line {line}: expected {width} numbers. Received: {str(values)[:80]}"
        )
    return numbers


def _of_names(path, line, names, labels, problem_type):
    """1 for a label that is predicted without a probability."""
    names = names if problem_type == MULTI_LABEL and isinstance(names, list) else [names]
    names = [str(name) for name in names]
    unknown = [name for name in names if name not in labels]
    if unknown:
        raise DataError(
            f"{path}, line {line}: expected labels of {list(labels)}. Received: {unknown}"
        )
    return [float(label in names) for label in labels]
