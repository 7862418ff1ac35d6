"""Scores predictions against gold labels: intervals, confusion matrix, worst errors.

    python tools/evaluate.py --task_name=sst-2 --data_dir=SST-2 --split=dev \
      --predictions_file=out/dev_results.tsv --output_dir=evaluation

The gold labels are those of the task's file (flags as in tools/run_classifier.py). Predictions: the
.tsv file that tools/run_classifier.py --do_predict writes (a line an example: a probability for
each label in the order of --labels, or a number), or .jsonl with `probabilities`, `label` or
`score`, and optionally `id`.

In --output_dir: `scores.json` and `report.txt` (every score with its bootstrap interval, the
confusion matrix, the errors that the model was surest of), `confusion.png`.
"""

import json
import os

import numpy as np
from absl import flags

from bert_tf import tool
from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.data.predictions import read_predictions
from bert_tf.errors import UserError
from bert_tf.files import atomic_path
from task_flags import require_labels, targets_of, task_from_flags

FLAGS = flags.FLAGS

flags.DEFINE_string("predictions_file", None, "The predictions.")
flags.DEFINE_enum("split", "test", ["train", "dev", "test"], "Which of the task's files is gold.")
flags.DEFINE_string("output_dir", None, "Where the report is written.")
flags.DEFINE_integer("bootstrap_samples", 1000, "Draws of the bootstrap.", lower_bound=1)
flags.DEFINE_float("confidence", 0.95, "Share of the draws inside an interval.",
                   lower_bound=0.01, upper_bound=0.999)
flags.DEFINE_integer("worst_errors", 20, "How many errors are listed.", lower_bound=0)
flags.DEFINE_bool("plot", True, "Write confusion.png; needs matplotlib.")
flags.DEFINE_integer("seed", 0, "Seed of the bootstrap.")


def labels_of(task, examples):
    """The labels in the order of the predictions' columns."""
    if task.problem_type == REGRESSION:
        return None
    labels = tuple(FLAGS.labels) if FLAGS.labels else task.labels
    if labels is None:
        raise UserError("--labels is needed: the labels in the order of the predictions' columns "
                        f"(run_classifier.py prints it). They are: {task.label_list(examples)}")
    return labels


def error_lines(examples, gold, predicted, labels, problem_type):
    """The worst errors first: how wrong, what was expected, what was predicted, the text."""
    if problem_type == REGRESSION:
        wrongness = np.abs(gold - predicted[:, 0])
    elif problem_type == MULTI_LABEL:
        off = np.abs(gold - predicted)
        wrongness = np.where(off.max(axis=1) > 0.5, off.max(axis=1), 0.0)
    else:
        wrong = predicted.argmax(axis=1) != gold
        wrongness = np.where(wrong, predicted.max(axis=1), 0.0)
    lines = []
    for row in np.argsort(-wrongness, kind="stable")[: FLAGS.worst_errors]:
        if wrongness[row] <= 0.0:
            break
        example, values = examples[row], predicted[row]
        if problem_type == REGRESSION:
            received = f"{values[0]:.4f}"
        elif problem_type == MULTI_LABEL:
            received = "+".join(name for name, p in zip(labels, values) if p >= 0.5) or "none"
        else:
            received = labels[values.argmax()]
        expected = example.label
        if isinstance(expected, tuple):
            expected = "+".join(expected) or "none"
        text = " ||| ".join(filter(None, (example.text_a, example.text_b)))
        lines.append(f"{wrongness[row]:.4f}\t{expected}\t{received}\t{row + 1}\t{text}")
    return lines


def main():
    from bert_tf.training.bootstrap import bootstrap_intervals
    from bert_tf.training.confusion_matrix import (
        confusion_matrix, confusion_text, save_confusion_png
    )
    from bert_tf.training.scores import all_scores

    tool.require_writable(FLAGS.output_dir, "output_dir")
    task = task_from_flags()
    kind = task.problem_type
    given = tuple(FLAGS.labels) if FLAGS.labels else None
    examples = task.read(FLAGS.data_dir, FLAGS.split, given)
    require_labels(examples, task.path(FLAGS.data_dir, FLAGS.split))
    labels = labels_of(task, examples)
    predicted = read_predictions(FLAGS.predictions_file, examples, labels, kind)
    gold = targets_of(examples, labels, kind)

    results = all_scores(gold, predicted, kind)
    intervals = bootstrap_intervals(
        gold, predicted, kind, FLAGS.bootstrap_samples, FLAGS.confidence, FLAGS.seed
    )
    lines = [f"{len(examples)} examples; intervals: bootstrap, {FLAGS.bootstrap_samples} draws, "
             f"{100 * FLAGS.confidence:g} %"]
    for name, value in results.items():
        low, high = intervals[name]
        official = "  (official)" if name in task.metrics else ""
        lines.append(f"{name:12s} {value:8.4f}  [{low:.4f}, {high:.4f}]{official}")
    if kind == SINGLE_LABEL:
        matrix = confusion_matrix(gold, predicted.argmax(axis=1), len(labels))
        lines += ["", confusion_text(matrix, labels)]
    errors = error_lines(examples, gold, predicted, labels, kind)
    if errors:
        lines += ["", "worst errors: how wrong, expected, predicted, example, text", *errors]
    with atomic_path(os.path.join(FLAGS.output_dir, "report.txt")) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    values = {
        name: {"value": value, "low": intervals[name][0], "high": intervals[name][1]}
        for name, value in results.items()
    }
    with atomic_path(os.path.join(FLAGS.output_dir, "scores.json")) as path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(values, file, indent=2)
            file.write("\n")
    print(*lines, sep="\n")
    if FLAGS.plot and kind == SINGLE_LABEL:
        with atomic_path(os.path.join(FLAGS.output_dir, "confusion.png")) as path:
            save_confusion_png(matrix, labels, path)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "predictions_file", "output_dir"])
    tool.run(main)
