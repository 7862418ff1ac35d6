"""The files of a classification or regression task, their columns, and files of predictions."""

import dataclasses
import itertools
import logging
import math
import os
from collections.abc import Sequence

import numpy as np

from bert_tf.base.file_errors import data_error
from bert_tf.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL
from bert_tf.errors import DataError, require, require_one_of, user_error
from bert_tf.inputs.tables.table_files import read_table
from bert_tf.inputs.tables.tsv import read_tsv

_logger = logging.getLogger("bert_tf")


@dataclasses.dataclass(frozen=True)
class TextExample:
    """One text, or pair of texts, with its label.

    Attributes:
        text_a, text_b: The text, and the second one of a pair, or None.
        label: The name of the label, a tuple of names for several labels, a float for regression,
            or None.
        id: The name of the example, or None.

    Example:
        >>> TextExample("a good film", label="good")
        TextExample(text_a='a good film', text_b=None, label='good', id=None)
    """

    text_a: str
    text_b: str | None = None
    label: str | tuple[str, ...] | float | None = None
    id: str | None = None


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a file: numbers from 0 (tab-separated), or names in a header or JSON lines.

    Attributes:
        text_a, text_b, label: The text, the second text of a pair, and the label.
        id: The name of the example, which must be unique.
        header: Whether the first line is skipped, if columns are numbers.
        only: A column and the value that it must have. Other lines are skipped.
        skips_short: Whether lines with too few columns are skipped and counted.
    """

    text_a: int | str
    text_b: int | str | None = None
    label: int | str | None = None
    id: int | str | None = None
    header: bool = False
    only: tuple[int, str] | None = None
    skips_short: bool = False


@dataclasses.dataclass(frozen=True)
class ClassificationTask:
    """The files, columns and metrics of a task.

    Attributes:
        train, dev, test: The columns of `train_file`, of `dev_file`, and of `test_file`, which need
            not have labels; None if there is no such file.
        labels: The labels in the order of their ids. None uses the sorted labels of `train_file`.
        problem_type: See `BertTextClassifier`.
        metrics: The names of the official metrics in `bert_tf.training.all_scores`.
        renamed_labels: Pairs of a label in the files and the label that it means.
        label_separator: The separator of several labels in one field.
        train_file, dev_file, test_file: The names of the files of the three splits.

    Raises:
        UserError: If `problem_type` is unknown.

    Example:
        >>> reviews = ClassificationTask(
        ...     train=Columns(text_a=0, label=1), dev=None, test=Columns(text_a=0)
        ... )
        >>> reviews.path("films", "train")
        'films/train.tsv'
    """

    train: Columns | None
    dev: Columns | None
    test: Columns
    labels: tuple[str, ...] | None = None
    problem_type: str = SINGLE_LABEL
    metrics: tuple[str, ...] = ("accuracy",)
    renamed_labels: tuple[tuple[str, str], ...] = ()
    label_separator: str = ","
    train_file: str = "train.tsv"
    dev_file: str = "dev.tsv"
    test_file: str = "test.tsv"

    def __post_init__(self):
        require_one_of("problem_type", self.problem_type, PROBLEM_TYPES)

    def path(self, data_dir: str | os.PathLike, split: str) -> str:
        """Returns the path of the file of a split."""
        return os.path.join(data_dir, getattr(self, f"{split}_file"))

    def read(
        self, data_dir: str | os.PathLike, split: str, labels: tuple[str, ...] | None = None
    ) -> list[TextExample]:
        """Reads the examples of a split. Empty texts and skipped lines are counted in the log.

        Args:
            data_dir, split: The directory of the task; "train", "dev" or "test".
            labels: The labels that may occur. None uses those of the task, or allows any.

        Raises:
            DataError: If the file is missing, empty or not UTF-8, or if a line lacks a column, has
                an unknown label or repeats an id. The message names the file and the line.
        """
        columns = getattr(self, split)
        require(columns is not None, "must have a file in this task", DataError, split=split)
        path = self.path(data_dir, split)
        labels = labels or self.labels
        examples, lines_of_ids, short, empty = [], {}, [], []
        for line, fields in self._rows(path, columns, label_needed=split != "test"):
            if fields is None:
                short.append(line)
                continue
            example = self._example(f"{path}, line {line}", fields, labels)
            if example.id is not None:
                note_id(lines_of_ids, example.id, path, line)
            texts = (text for text in (example.text_a, example.text_b) if text is not None)
            if not all(map(str.strip, texts)):
                empty.append(line)
            examples.append(example)
        kinds = "skipped lines with too few columns", "examples with an empty text"
        for what, found in zip(kinds, (short, empty)):
            if found:
                _logger.warning("%s: %d %s (first: line %d)", path, len(found), what, found[0])
        if not examples:
            raise data_error(path, f"have one example per line, {_layout(columns)}", "no examples")
        return examples

    def label_list(self, train_examples: list[TextExample]) -> tuple[str, ...] | None:
        """Returns the labels of the task or those of the examples, sorted; None for regression.

        Raises:
            DataError: If the examples have too few labels.
        """
        if self.labels is not None or self.problem_type == REGRESSION:
            return self.labels
        if self.problem_type == MULTI_LABEL:
            least, names = 1, {name for example in train_examples for name in example.label}
        else:
            least, names = 2, {example.label for example in train_examples}
        if len(names) < least:
            expected = f"have at least {least} labels"
            raise user_error("The training data", expected, sorted(names), DataError)
        return tuple(sorted(names))

    def _rows(self, path, columns, label_needed):
        """Yields the number and the fields of each line; None if it is skipped as too short."""
        places = {name: getattr(columns, name) for name in ("text_a", "text_b", "label", "id")}
        places = {name: place for name, place in places.items() if place is not None}
        needed = [place for name, place in places.items() if name != "label" or label_needed]
        is_named = isinstance(columns.text_a, str)
        if is_named:
            only = [columns.only[0]] if columns.only else []
            rows = read_table(path, columns=[*places.values(), *only])
        else:
            lines = itertools.islice(read_tsv(path), int(columns.header), None)
            rows = ((line, dict(enumerate(fields))) for line, fields in lines)
        for line, row in rows:
            missing = [place for place in needed if place not in row]
            if missing and is_named:
                raise data_error(path, f"have the columns {missing}", sorted(row), line)
            elif missing and columns.skips_short:
                yield line, None
            elif missing:
                raise DataError(
                    f"{path}, line {line} must have at least {max(needed) + 1} tab-separated "
                    f"columns, {_layout(columns)}. Received: {len(row)}"
                )
            elif columns.only is None or row.get(columns.only[0]) == columns.only[1]:
                yield line, {name: row.get(place) for name, place in places.items()}

    def _example(self, where, fields, labels):
        for column in ("text_a", "text_b"):
            if not isinstance(fields.get(column, ""), str):
                raise DataError(f"{where} must have a text. Received: {fields[column]!r}")
        if fields.get("label") == "" and self.problem_type != MULTI_LABEL:
            fields["label"] = None
        if fields.get("label") is not None:
            fields["label"] = self._label(where, fields["label"], labels)
        if fields.get("id") is not None:
            fields["id"] = str(fields["id"])
        return TextExample(**fields)

    def _label(self, where, value, labels):
        if self.problem_type == REGRESSION:
            try:
                number = float(value)
            except (TypeError, ValueError):
                number = math.nan
            if not math.isfinite(number):
                raise DataError(f"{where} must have a number as label. Received: {value!r}")
            return number
        if self.problem_type == MULTI_LABEL:
            if isinstance(value, str):
                value = [name.strip() for name in value.split(self.label_separator)]
            elif not isinstance(value, list):
                raise DataError(f"{where} must have a list of labels. Received: {value!r}")
            return tuple(self._name(where, name, labels) for name in value if name != "")
        return self._name(where, value, labels)

    def _name(self, where, value, labels):
        name = dict(self.renamed_labels).get(str(value), str(value))
        if labels is not None and name not in labels:
            raise DataError(f"{where} must have a label of {list(labels)}. Received: {name!r}")
        return name


def note_id(lines_of_ids: dict[str, int], name: str, path: str | os.PathLike, line: int) -> None:
    """Adds an id and its line; raises `DataError` if another line has the id."""
    if lines_of_ids.setdefault(name, line) != line:
        expected = "have a unique id"
        raise data_error(path, expected, f"{name!r}, as in line {lines_of_ids[name]}", line)


def _layout(columns: Columns) -> str:
    parts = {"text": columns.text_a, "second text": columns.text_b, "label": columns.label}
    named = [
        f"{name} in column {at + 1 if isinstance(at, int) else repr(at)}"
        for name, at in parts.items()
        if at is not None
    ]
    return ", ".join(named) + (", after a header line" if columns.header else "")


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
        raise data_error(path, f"have {len(examples)} predictions, one per example", len(rows))
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
        raise data_error(path, "have ids of examples", f"{unknown} ids that no example has")
    of_id = dict(zip(ids, rows))
    return [of_id[example.id] for example in examples]


def _numbers(path, line, values, width):
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != width or not np.isfinite(numbers).all():
        raise data_error(path, f"have {width} numbers", str(values)[:80], line)
    return numbers


def _of_names(path, line, names, labels, problem_type):
    """Returns 1 for each predicted label and 0 for the others."""
    names = names if problem_type == MULTI_LABEL and isinstance(names, list) else [names]
    names = [str(name) for name in names]
    unknown = [name for name in names if name not in labels]
    if unknown:
        raise data_error(path, f"have labels of {list(labels)}", unknown, line)
    return [float(label in names) for label in labels]
