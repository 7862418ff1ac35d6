"""The flags that say which examples of which files: shared by the classification tools."""

import numpy as np
from absl import flags

from bert_tf.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION, SINGLE_LABEL
from bert_tf.errors import UserError
from bert_tf.tasks.text_classification.official_tasks import TASKS, table_task, xnli_task

FLAGS = flags.FLAGS
TABLE = "table"

flags.DEFINE_enum(
    "task_name",
    None,
    sorted([*TASKS, TABLE]),
    "The task: `simple` (text<TAB>label, no header), `table` (files with named columns, see "
    "--text_column), or one of GLUE's or XNLI with its official files.",
    case_sensitive=False,
)
flags.DEFINE_string("data_dir", None, "The directory with the task's files.")
flags.DEFINE_list(
    "labels",
    None,
    "The labels in the order of their ids; of two, the second is the positive class of F1 and AUC. "
    "Default: the task's own or the model's, or those of the training file, sorted.",
)
flags.DEFINE_string(
    "text_column",
    "text",
    "Of --task_name=table: the column, or JSON key, of the "
    "text in train, dev and test, each a .tsv, .csv (with a header) or .jsonl.",
)
flags.DEFINE_string("pair_column", None, "Of table: the second text of a pair.")
flags.DEFINE_string("label_column", "label", "Of table: the label.")
flags.DEFINE_string("id_column", None, "Of table: the example's name.")
flags.DEFINE_enum("problem_type", SINGLE_LABEL, PROBLEM_TYPES, "Of table: what is learnt.")
flags.DEFINE_string("label_separator", ",", "Of table: between several labels in one field.")
flags.DEFINE_string("xnli_language", "zh", "Of xnli: the language.")


def task_from_flags():
    """The `ClassificationTask` that the flags describe."""
    name = FLAGS.task_name.lower()
    if name == "xnli":
        return xnli_task(FLAGS.xnli_language)
    if name != TABLE:
        return TASKS[name]
    return table_task(
        FLAGS.data_dir,
        FLAGS.text_column,
        FLAGS.pair_column,
        FLAGS.label_column,
        FLAGS.id_column,
        problem_type=FLAGS.problem_type,
        label_separator=FLAGS.label_separator,
    )


def inputs_of(examples):
    """What a model's `fit` and `predict` take: texts, or texts and their pairs."""
    texts = [example.text_a for example in examples]
    if examples[0].text_b is None:
        return texts
    return texts, [example.text_b for example in examples]


def require_labels(examples, path):
    """Says which example of a file has no label, before any work."""
    for number, example in enumerate(examples, start=1):
        if example.label is None:
            raise UserError(
                f"{path}: a label was expected for every example. Received: none for "
                f"number {number}, {example.text_a[:60]!r}"
            )


def require_model_of(task, model, labels):
    """Says which of problem type and labels a model and the task do not have in common."""
    if model.problem_type != task.problem_type:
        raise UserError(
            f"--task_name={FLAGS.task_name} is {task.problem_type}. Received: a model for "
            f"{model.problem_type}"
        )
    if task.problem_type != REGRESSION:
        expected = labels or task.labels
        if model.labels is None or (expected and set(model.labels) != set(expected)):
            raise UserError(
                f"The model's labels must be the task's: {expected and list(expected)}. Received: "
                f"{model.labels}. Say with --labels which is which, in the order of their ids."
            )


def targets_of(examples, labels, problem_type):
    """Gold labels as scikit-learn takes them: numbers, 0 or 1 for each label, or class ids."""
    if problem_type == REGRESSION:
        return np.array([example.label for example in examples])
    if problem_type == MULTI_LABEL:
        return np.array([[label in example.label for label in labels] for example in examples], int)
    return np.array([labels.index(example.label) for example in examples])
