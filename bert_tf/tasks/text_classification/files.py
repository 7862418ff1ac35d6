"""One classification or regression task: which column of which file holds what."""

import dataclasses
import logging
import math
import os

from bert_tf.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL
from bert_tf.data.table_files import read_table
from bert_tf.data.tsv import read_tsv
from bert_tf.errors import DataError, UserError

_logger = logging.getLogger("bert_tf")


@dataclasses.dataclass(frozen=True)
class TextExample:
    """One text, or pair of texts, with its label.

    Attributes:
        text_a: The text.
        text_b: The second text of a pair, or None.
        label: The label's name, a tuple of names for several labels, a float for regression, or
            None where the file has none.
        id: The example's name, or None where the file has none.

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
    """Where a file keeps its fields.

    Numbers count from 0 in a tab-separated file; names are those of a file with a header, or the
    keys of JSON lines.

    Attributes:
        text_a: The text.
        text_b: The second text of a pair.
        label: The label.
        id: The example's name, which may occur once.
        header: Whether the first line is none of the examples; for numbers only.
        only: A column and the value it must have; other lines are left out.
        skips_short: Whether lines with too few columns are counted and left out.
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
    """Files, columns and metrics of one task.

    Attributes:
        train: Layout of `train_file`, or None if there is none.
        dev: Layout of `dev_file`, or None.
        test: Layout of `test_file`, which need not have labels.
        labels: The labels in the order of their ids; None takes the sorted ones of the train file.
        problem_type: Hugging Face's word: "single_label_classification", "regression" or
            "multi_label_classification".
        metrics: The task's official metrics, by the names of `bert_tf.training.evaluation.scores`.
        renamed_labels: Spellings of labels in the files, and what they stand for.
        label_separator: What separates several labels in one field; JSON lines may have lists.
        train_file: Name of the file to train on.
        dev_file: Name of the file to evaluate on.
        test_file: Name of the file to predict.

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
        if self.problem_type not in PROBLEM_TYPES:
            raise UserError(
                f"`problem_type` must be one of {PROBLEM_TYPES}. "
                f"Received: problem_type={self.problem_type!r}"
            )

    def path(self, data_dir: str | os.PathLike, split: str) -> str:
        """The file of a split."""
        return os.path.join(data_dir, getattr(self, f"{split}_file"))

    def read(
        self, data_dir: str | os.PathLike, split: str, labels: tuple[str, ...] | None = None
    ) -> list[TextExample]:
        """Reads one split, "train", "dev" or "test".

        Pairs with an empty side and lines that `Columns.skips_short` leaves out are counted in the
        log.

        Args:
            data_dir: The task's directory.
            split: Which file.
            labels: The labels that may occur; None allows the task's own, or any.

        Returns:
            Its examples, in the order of the file.

        Raises:
            DataError: If the file is missing or empty, a line lacks a column, holds an unknown
                label or an id that was there before, or is not UTF-8; with file and line.
        """
        columns = getattr(self, split)
        if columns is None:
            raise DataError(f"This task has no {split} file. Expected another split.")
        path = self.path(data_dir, split)
        labels = labels or self.labels
        examples, lines_of_ids, short, half_empty = [], {}, [], []
        for line, fields in self._rows(path, columns, label_needed=split != "test"):
            if fields is None:
                short.append(line)
                continue
            example = self._example(f"{path}, line {line}", fields, labels)
            if example.id is not None and lines_of_ids.setdefault(example.id, line) != line:
                raise DataError(
                    f"{path}, line {line}: expected an id of its own. Received: "
                    f"{example.id!r}, which line {lines_of_ids[example.id]} has"
                )
            if example.text_b is not None and not (
                example.text_a.strip() and example.text_b.strip()
            ):
                half_empty.append(line)
            examples.append(example)
        for found, what in (
            (short, "lines with too few columns, left out"),
            (half_empty, "pairs with an empty side"),
        ):
            if found:
                _logger.warning("%s: %d %s (first: line %d)", path, len(found), what, found[0])
        if not examples:
            raise DataError(f"{path} holds no examples. Expected one a line, {_layout(columns)}")
        return examples

    def label_list(self, train_examples: list[TextExample]) -> tuple[str, ...] | None:
        """The task's labels, or those that occur, sorted; None for regression."""
        if self.labels is not None or self.problem_type == REGRESSION:
            return self.labels
        if self.problem_type == MULTI_LABEL:
            names = {name for example in train_examples for name in example.label}
        else:
            names = {example.label for example in train_examples}
        if len(names) < (1 if self.problem_type == MULTI_LABEL else 2):
            raise DataError(
                f"At least two labels were expected in the training data. Received: {sorted(names)}"
            )
        return tuple(sorted(names))

    def _rows(self, path, columns, label_needed):
        """Line numbers and dictionaries of the fields; None for a line left out as too short."""
        places = {
            name: place
            for name in ("text_a", "text_b", "label", "id")
            if (place := getattr(columns, name)) is not None
        }
        needed = [name for name in places if name != "label" or label_needed]
        if isinstance(columns.text_a, str):
            for line, row in read_table(path):
                missing = [places[name] for name in needed if places[name] not in row]
                if missing:
                    raise DataError(
                        f"{path}, line {line}: expected the columns {missing}. "
                        f"Received: {sorted(row)}"
                    )
                yield line, {name: row.get(place) for name, place in places.items()}
            return
        width = max(places[name] for name in needed) + 1
        for index, (line, fields) in enumerate(read_tsv(path)):
            if index == 0 and columns.header:
                continue
            if len(fields) < width:
                if columns.skips_short:
                    yield line, None
                    continue
                raise DataError(
                    f"{path}, line {line}: expected at least {width} tab-separated columns, "
                    f"{_layout(columns)}. Received: {len(fields)}"
                )
            if columns.only is None or fields[columns.only[0]] == columns.only[1]:
                yield (
                    line,
                    {
                        name: fields[place] if place < len(fields) else None
                        for name, place in places.items()
                    },
                )

    def _example(self, where, fields, labels):
        texts = [fields["text_a"]] + ([fields["text_b"]] if "text_b" in fields else [])
        for text in texts:
            if not isinstance(text, str):
                raise DataError(f"{where}: expected text. Received: {text!r}")
        label = fields.get("label")
        if label is not None:
            label = self._label(where, label, labels)
        name = fields.get("id")
        return TextExample(
            texts[0],
            texts[1] if len(texts) > 1 else None,
            label,
            None if name is None else str(name),
        )

    def _label(self, where, value, labels):
        if self.problem_type == REGRESSION:
            try:
                number = float(value)
            except (TypeError, ValueError):
                number = math.nan
            if not math.isfinite(number):
                raise DataError(f"{where}: expected a number as label. Received: {value!r}")
            return number
        if self.problem_type == MULTI_LABEL:
            if isinstance(value, str):
                value = [name.strip() for name in value.split(self.label_separator)]
            elif not isinstance(value, list):
                raise DataError(f"{where}: expected a list of labels. Received: {value!r}")
            return tuple(self._name(where, name, labels) for name in value if name != "")
        return self._name(where, value, labels)

    def _name(self, where, value, labels):
        name = dict(self.renamed_labels).get(str(value), str(value))
        if labels is not None and name not in labels:
            raise DataError(f"{where}: unknown label {name!r}. Expected one of {list(labels)}")
        return name


def _layout(columns: Columns) -> str:
    parts = {"text": columns.text_a, "second text": columns.text_b, "label": columns.label}
    named = [
        f"{name} in column {at + 1 if isinstance(at, int) else repr(at)}"
        for name, at in parts.items()
        if at is not None
    ]
    return ", ".join(named) + (", after a header line" if columns.header else "")
