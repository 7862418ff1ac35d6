"""The classification tasks of run_classifier.py: GLUE, XNLI and custom tables.

The columns are those of google-research/bert run_classifier.py and of gluebenchmark.com. The
metrics are those of GLUE (Wang et al. 2018, arXiv 1804.07461).
"""

import dataclasses
import os

from bert_tf.config import REGRESSION
from bert_tf.inputs.tables.table_files import find_table
from bert_tf.tasks.text_classification.files import ClassificationTask, Columns

_ACCURACY_F1 = ("accuracy", "f1")
_NLI = ("contradiction", "entailment", "neutral")
_TWO_WAY_NLI = ("entailment", "not_entailment")
_BINARY = ("0", "1")


def _pairs(text_a, text_b, label=None, **options):
    return Columns(text_a=text_a, text_b=text_b, label=label, header=True, **options)


def xnli_task(language: str = "zh") -> ClassificationTask:
    """Returns the task of XNLI, trained on the translated MultiNLI, as in google-research/bert.

    Args:
        language: The code in the name of the training file and in the first column of the others.

    Example:
        >>> bert_tf.tasks.text_classification.xnli_task("de").train_file
        'multinli/multinli.train.de.tsv'
    """
    evaluated = _pairs(6, 7, label=1, only=(0, language))
    return ClassificationTask(
        _pairs(0, 1, label=2),
        evaluated,
        evaluated,
        labels=_NLI,
        renamed_labels=(("contradictory", "contradiction"),),
        train_file=os.path.join("multinli", f"multinli.train.{language}.tsv"),
        dev_file="xnli.dev.tsv",
        test_file="xnli.test.tsv",
    )


def table_task(
    data_dir: str | os.PathLike,
    text_column: str = "text",
    pair_column: str | None = None,
    label_column: str = "label",
    id_column: str | None = None,
    **options,
) -> ClassificationTask:
    """Returns a task in custom files: train, dev and test, each `.tsv`, `.csv` or `.jsonl`.

    Args:
        data_dir: The directory of the files.
        text_column, pair_column, label_column, id_column: The names of the columns (in JSON lines
            the keys) of the text, the second text of a pair, the label and the example's name.
        **options: Arguments of `ClassificationTask`, such as `labels` and `problem_type`.

    Raises:
        DataError: If a split has several files.
        UserError: If `problem_type` is unknown.

    Example:
        >>> import pathlib
        >>> pathlib.Path("tickets").mkdir()
        >>> for split in ("train", "dev", "test"):
        ...     lines = '{"text": "no light", "topics": ["power"]}\\n'
        ...     size = pathlib.Path(f"tickets/{split}.jsonl").write_text(lines)
        >>> task = bert_tf.tasks.text_classification.table_task(
        ...     "tickets", label_column="topics", problem_type="multi_label_classification"
        ... )
        >>> task.read("tickets", "train")
        [TextExample(text_a='no light', text_b=None, label=('power',), id=None)]
    """
    columns = Columns(text_column, pair_column, label_column, id_column)
    files = {
        f"{split}_file": os.path.basename(find_table(os.fspath(data_dir), split))
        for split in ("train", "dev", "test")
    }
    return ClassificationTask(columns, columns, columns, **files, **options)


_SIMPLE = Columns(text_a=0, label=1)
_COLA = Columns(text_a=3, label=1)
_SST2 = Columns(text_a=0, label=1, header=True)
_SINGLE_TEST = Columns(text_a=1, id=0, header=True)
_MRPC = _pairs(3, 4, label=0)
# Some questions contain line breaks, so that some lines are incomplete.
_QQP = _pairs(3, 4, label=5, skips_short=True)
_STSB = _pairs(7, 8, label=9)
_INDEXED = _pairs(1, 2, label=3)
_INDEXED_TEST = _pairs(1, 2, id=0)

# The gold label is the last column: 12th in train.tsv, 16th in the dev files.
_MNLI = ClassificationTask(
    _pairs(8, 9, label=11),
    _pairs(8, 9, label=15),
    _pairs(8, 9, id=0),
    labels=_NLI,
    dev_file="dev_matched.tsv",
    test_file="test_matched.tsv",
)

TASKS: dict[str, ClassificationTask] = {
    # text<TAB>label, with any labels and without a header.
    "simple": ClassificationTask(_SIMPLE, _SIMPLE, _SIMPLE),
    "cola": ClassificationTask(_COLA, _COLA, _SINGLE_TEST, _BINARY, metrics=("matthews",)),
    "sst-2": ClassificationTask(_SST2, _SST2, _SINGLE_TEST, _BINARY),
    "mrpc": ClassificationTask(_MRPC, _MRPC, _pairs(3, 4, id=0), _BINARY, metrics=_ACCURACY_F1),
    "qqp": ClassificationTask(_QQP, _QQP, _INDEXED_TEST, _BINARY, metrics=_ACCURACY_F1),
    "sts-b": ClassificationTask(
        _STSB, _STSB, _pairs(7, 8, id=0), problem_type=REGRESSION, metrics=("pearson", "spearman")
    ),
    "mnli": _MNLI,
    "mnli-mm": dataclasses.replace(
        _MNLI, dev_file="dev_mismatched.tsv", test_file="test_mismatched.tsv"
    ),
    "qnli": ClassificationTask(_INDEXED, _INDEXED, _INDEXED_TEST, _TWO_WAY_NLI),
    "rte": ClassificationTask(_INDEXED, _INDEXED, _INDEXED_TEST, _TWO_WAY_NLI),
    "wnli": ClassificationTask(_INDEXED, _INDEXED, _INDEXED_TEST, _BINARY),
    # GLUE's diagnostic set: predicted by a model trained on mnli.
    "ax": ClassificationTask(
        None, None, _INDEXED_TEST, _NLI, metrics=("matthews",), test_file="diagnostic.tsv"
    ),
    "xnli": xnli_task(),
}
