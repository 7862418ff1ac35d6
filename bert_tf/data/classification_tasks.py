"""The classification tasks of run_classifier.py: which column of which file holds what.

Column layouts as in google-research/bert run_classifier.py's processors and the GLUE files.
"""

import dataclasses
import os

from bert_tf.data.tsv import read_tsv
from bert_tf.errors import DataError


@dataclasses.dataclass(frozen=True)
class TextExample:
    """One text, or pair of texts, with its label.

    Attributes:
        text_a: The text.
        text_b: The second text of a pair, or None.
        label: The label's name, or None where the file has none.
    """

    text_a: str
    text_b: str | None = None
    label: str | None = None


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where a file keeps its fields, counted from 0."""

    text_a: int
    text_b: int | None = None
    label: int | None = None
    header: bool = False


@dataclasses.dataclass(frozen=True)
class ClassificationTask:
    """Files and columns of one task.

    Attributes:
        train: Layout of `train_file`.
        dev: Layout of `dev_file`.
        test: Layout of `test_file`, which need not have labels.
        labels: The labels in the order of their ids; None takes the sorted ones of the train file.
        dev_file: Name of the file to evaluate on.
        test_file: Name of the file to predict.
    """

    train: Columns
    dev: Columns
    test: Columns
    labels: tuple[str, ...] | None = None
    train_file: str = "train.tsv"
    dev_file: str = "dev.tsv"
    test_file: str = "test.tsv"

    def read(
        self, data_dir: str, split: str, labels: tuple[str, ...] | None = None
    ) -> list[TextExample]:
        """Reads one split, "train", "dev" or "test".

        Args:
            data_dir: The task's directory.
            split: Which file.
            labels: The labels that may occur; None allows the task's own, or any.

        Returns:
            Its examples, in the order of the file.

        Raises:
            DataError: If the file is missing or empty, a line lacks a column or holds an unknown
                label, or is not UTF-8; with file and line.
        """
        columns = getattr(self, split)
        path = os.path.join(data_dir, getattr(self, f"{split}_file"))
        labels = labels or self.labels
        examples = []
        for index, (line, fields) in enumerate(read_tsv(path)):
            if index == 0 and columns.header:
                continue
            examples.append(_example(path, line, fields, columns, labels, split))
        if not examples:
            raise DataError(f"{path} holds no examples. Expected one a line, {_layout(columns)}")
        return examples

    def label_list(self, train_examples: list[TextExample]) -> tuple[str, ...]:
        """The task's labels, or those that occur, sorted."""
        if self.labels is not None:
            return self.labels
        labels = tuple(sorted({example.label for example in train_examples}))
        if len(labels) < 2:
            raise DataError(
                f"At least two labels were expected in the training data. Received: {labels}"
            )
        return labels


def _example(path, line, fields, columns, labels, split):
    optional_label = split == "test"
    needed = [columns.text_a, columns.text_b]
    if not optional_label:
        needed.append(columns.label)
    width = max(column for column in needed if column is not None) + 1
    if len(fields) < width:
        raise DataError(
            f"{path}, line {line}: expected at least {width} tab-separated columns, "
            f"{_layout(columns)}. Received: {len(fields)}"
        )
    label = None
    if columns.label is not None and len(fields) > columns.label:
        label = fields[columns.label]
        if labels is not None and label not in labels:
            raise DataError(
                f"{path}, line {line}: unknown label {label!r}. Expected one of {list(labels)}"
            )
    text_b = None if columns.text_b is None else fields[columns.text_b]
    return TextExample(fields[columns.text_a], text_b, label)


def _layout(columns: Columns) -> str:
    parts = {
        "text": columns.text_a,
        "second text": columns.text_b,
        "label": columns.label,
    }
    named = [f"{name} in column {at + 1}" for name, at in parts.items() if at is not None]
    return ", ".join(named) + (", after a header line" if columns.header else "")


_COLA = Columns(text_a=3, label=1)
_SST2 = Columns(text_a=0, label=1, header=True)
_MRPC = Columns(text_a=3, text_b=4, label=0, header=True)
_SIMPLE = Columns(text_a=0, label=1)

TASKS: dict[str, ClassificationTask] = {
    # text<TAB>label, any labels, no header.
    "simple": ClassificationTask(_SIMPLE, _SIMPLE, _SIMPLE),
    "cola": ClassificationTask(
        _COLA, _COLA, Columns(text_a=1, header=True), labels=("0", "1")
    ),
    "sst-2": ClassificationTask(
        _SST2, _SST2, Columns(text_a=1, header=True), labels=("0", "1")
    ),
    "mrpc": ClassificationTask(
        _MRPC, _MRPC, dataclasses.replace(_MRPC, label=None), labels=("0", "1")
    ),
    # The label is the last column: 12th in train.tsv, 16th in dev_matched.tsv (gold_label).
    "mnli": ClassificationTask(
        Columns(text_a=8, text_b=9, label=11, header=True),
        Columns(text_a=8, text_b=9, label=15, header=True),
        Columns(text_a=8, text_b=9, header=True),
        labels=("contradiction", "entailment", "neutral"),
        dev_file="dev_matched.tsv",
        test_file="test_matched.tsv",
    ),
}
