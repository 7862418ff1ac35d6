"""The flags that name a classification task and its files."""

import numpy as np

from bert_tf.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL
from bert_tf.errors import user_error
from bert_tf.tasks.text_classification.official_tasks import TASKS, table_task, xnli_task
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("", "Task and its files"),)
TABLE = "table"

define_flags(
    f"""
    task_name ({"|".join(sorted([*TASKS, TABLE]))}): The task: `simple` (lines of text<TAB>label, no
        header), `table` (files with named columns, see --text_column), or a task of GLUE or XNLI
        with its official files.
    """,
    case_sensitive=False,
)
define_flags(f"""
    data_dir (str): The directory with the task's files.
    labels (list): The labels in the order of their ids, separated by commas. Of two labels, the
        second is the positive class of F1 and AUC. Default: the labels of the task or of the model,
        or the sorted labels of the training file.
    text_column (str, text): For --task_name=table: the column or JSON key of the text in the train,
        dev and test files, each a .tsv or .csv file with a header, or a .jsonl or .parquet file.
    pair_column (str): For --task_name=table: the column of the second text of a pair. Default:
        single texts.
    label_column (str, label): For --task_name=table: the column of the label.
    id_column (str): For --task_name=table: the column of the example's id. Default: no ids.
    problem_type ({"|".join(PROBLEM_TYPES)}, {SINGLE_LABEL}): For --task_name=table: one label per
        example, several labels, or a number.
    label_separator (str, ,): For --task_name=table: the separator of several labels in one field.
    xnli_language (str, zh): For --task_name=xnli: the code of the language, such as zh or de.
""")


def task_from_flags():
    """Returns the `ClassificationTask` that the flags describe."""
    name = FLAGS.task_name
    if name == "xnli":
        return xnli_task(FLAGS.xnli_language)
    if name != TABLE:
        return TASKS[name]
    columns = (FLAGS.text_column, FLAGS.pair_column, FLAGS.label_column, FLAGS.id_column)
    options = {name: FLAGS[name].value for name in ("problem_type", "label_separator")}
    return table_task(FLAGS.data_dir, *columns, **options)


def table_columns():
    """Returns the names of the columns of --task_name=table, by the attributes of an example."""
    return {
        "id": FLAGS.id_column,
        "text_a": FLAGS.text_column,
        "text_b": FLAGS.pair_column,
        "label": FLAGS.label_column,
    }


def given_labels():
    return tuple(FLAGS.labels) if FLAGS.labels else None


def known_labels(task, *directories):
    """Returns the labels that examples may have: the flag's, the task's, or the first model's.

    Those of a model are read from its files without its weights. None allows all labels.
    """
    from bert_tf.checkpoints.loading import labels_in_files

    if task.problem_type == REGRESSION or given_labels() or task.labels:
        return given_labels() or task.labels
    return next(filter(None, map(labels_in_files, directories)), None)


def read_examples(task, split, labels=None):
    """Reads one of the task's files, whose examples must all have labels."""
    examples = task.read(FLAGS.data_dir, split, labels)
    for number, example in enumerate(examples, start=1):
        if example.label is None:
            expected = "have a label for every example"
            received = f"no label for example {number}, {example.text_a[:60]!r}"
            raise user_error(task.path(FLAGS.data_dir, split), expected, received)
    return examples


def inputs_of(examples):
    """Returns the inputs of `fit` and `predict`: a list of texts, or two lists for pairs."""
    texts = [example.text_a for example in examples]
    if examples[0].text_b is None:
        return texts
    return texts, [example.text_b for example in examples]


def inputs_and_targets(model, examples):
    return inputs_of(examples), model.targets([example.label for example in examples])


def load_classifier(task, directory, purpose):
    """Loads a trained model for the task; `purpose` is the word for it in errors."""
    from bert_tf.tasks.text_classification.model import BertTextClassifier

    options = options_of(max_length="max_seq_length")
    model = BertTextClassifier.from_pretrained(directory, **options)
    model.require_trained_heads(purpose)
    require_model_of(task, model, given_labels())
    return model


def require_model_of(task, model, labels):
    """Requires that a model has the problem type and the labels of the task."""
    if model.problem_type != task.problem_type:
        expected = f"be one for {task.problem_type}, as --task_name={FLAGS.task_name} is"
        raise user_error("The model", expected, f"a model for {model.problem_type}")
    if task.problem_type != REGRESSION:
        expected = labels or task.labels
        if model.labels is None or (expected and set(model.labels) != set(expected)):
            expected = f"be the task's: {expected and list(expected)}"
            received = f"{model.labels}. Set --labels to the labels in the order of their ids."
            raise user_error("The model's labels", expected, received)


def targets_of(examples, labels, problem_type):
    """Returns the gold labels for scikit-learn: numbers, 0 or 1 for each label, or class ids."""
    if problem_type == REGRESSION:
        return np.array([example.label for example in examples])
    if problem_type == MULTI_LABEL:
        return np.array([[label in example.label for label in labels] for example in examples], int)
    return np.array([labels.index(example.label) for example in examples])
