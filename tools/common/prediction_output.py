"""What tools write of answers: lines, or columns next to those of the input."""

import contextlib
import json
import os
import sys

from bert_tf.base.files import atomic_path
from bert_tf.base.json_values import as_json
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.errors import user_error
from bert_tf.inputs.tables.table_files import SUFFIXES
from bert_tf.inputs.tables.table_writer import open_table

DIGITS = 6  # of probabilities, after the point


@contextlib.contextmanager
def open_output(path, model):
    """Yields a function that writes a block of rows and their answers.

    Args:
        path: The file, which is replaced atomically at the end: a table if its ending is that of
            one. None for standard output.
        model: The model that answers.
    """
    if path is None:
        yield lambda rows, answers: sys.stdout.writelines(_lines(model, rows, answers))
    elif is_table(path):
        with open_table(path) as table:
            yield lambda rows, answers: table.write(_joined(model, rows, answers))
    else:
        with atomic_path(path) as new, open(new, "w", encoding="utf-8") as file:
            yield lambda rows, answers: file.writelines(_lines(model, rows, answers))


def is_table(path) -> bool:
    """Returns whether the ending of a path is that of a table."""
    return os.path.splitext(path)[1].lower() in SUFFIXES


def predicted_columns(model, answers) -> dict[str, list]:
    """Returns answers as columns: of a classifier its labels and rounded probabilities.

    A named tuple of another task becomes a column for each of its parts.
    """
    if hasattr(model, "classify"):
        from bert_tf.tasks.text_classification.preprocessor import answer_columns

        columns = answer_columns(answers, model.preprocessor.names, model.problem_type)
        return {name: [_rounded(value) for value in values] for name, values in columns.items()}
    plain = [as_json(answer) for answer in answers]
    if not isinstance(plain[0], dict):
        return {"predicted": plain}
    return {f"predicted_{name}": [answer[name] for answer in plain] for name in plain[0]}


def write_predictions(path, examples, answers, columns, model):
    """Writes classified examples and their answers as a table, atomically.

    Args:
        path: A file with the ending of a table.
        examples: A list of `TextExample`.
        answers: What the model says to each.
        columns: The names of the columns, by the attributes of an example; those without a name,
            and labels that no example has, are left out.
        model: The `BertTextClassifier`.
    """
    named = {name: column for name, column in columns.items() if column is not None}
    if all(example.label is None for example in examples):
        named.pop("label", None)
    predicted = predicted_columns(model, answers)
    require_new_columns(named.values(), predicted)
    found = (dict(zip(predicted, values)) for values in zip(*predicted.values()))
    with open_table(path) as table:
        table.write(
            [
                {column: getattr(example, name) for name, column in named.items()} | values
                for example, values in zip(examples, found, strict=True)
            ]
        )


def require_new_columns(known, predicted) -> None:
    """Raises `UserError` if the input has a column of the name of a prediction."""
    both = sorted(set(known) & set(predicted))
    if both:
        received = f"{both}. Rename these columns, or remove them."
        raise user_error("The input", "have no column with the name of a prediction", received)


def _joined(model, rows, answers):
    columns = predicted_columns(model, answers)
    for row in rows:
        require_new_columns(row.columns, columns)
    found = (dict(zip(columns, values)) for values in zip(*columns.values()))
    return [{**row.columns, **values} for row, values in zip(rows, found, strict=True)]


def _lines(model, rows, answers):
    for row, answer in zip(rows, answers, strict=True):
        yield f"{_shown(model, answer)}\t{' ||| '.join(row.texts)}\n"


def _shown(model, answer):
    if not hasattr(model, "classify"):
        return json.dumps(as_json(answer), ensure_ascii=False)
    if model.problem_type == REGRESSION:
        return " ".join(f"{value:.4f}" for value in answer.scores.values())
    if model.problem_type == MULTI_LABEL:
        return " ".join(f"{label}:{answer.scores[label]:.4f}" for label in answer.labels)
    return f"{answer.label}\t{answer.scores[answer.label]:.4f}"


def _rounded(value):
    return round(value, DIGITS) if isinstance(value, float) else value
