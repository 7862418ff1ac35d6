r"""Scores predictions against gold labels, with confidence intervals and the worst errors.

Classes, several labels per example, or numbers (--kind=classes, the default):

    bert-tf evaluate --task_name=sst-2 --data_dir=SST-2 --split=dev \
      --predictions_file=out/dev_results.tsv --output_dir=evaluation

The gold labels are those of the task's file; the flags for it are those of
bert-tf run_classifier. The predictions are the .tsv file that bert-tf run_classifier
--do_predict writes (one line per example: the probabilities of the labels in the order of --labels,
or a number), or a .jsonl file with `probabilities`, `label` or `score`, and optionally `id`. Of the
predictions of several models, --predictions_file=a.tsv,b.tsv scores the mean.

Tags of words (--kind=tags): the predictions are the columns that bert-tf run_ner writes (word,
gold tag, predicted tag), or any CoNLL columns with the predicted tag last, and the gold tags in
--gold_file:

    bert-tf evaluate --kind=tags --predictions_file=out/test_predictions.txt \
      --output_dir=evaluation

Answers (--kind=answers): a SQuAD file and `predictions.json`:

    bert-tf evaluate --kind=answers --gold_file=dev-v1.1.json \
      --predictions_file=out/predictions.json --output_dir=evaluation

The tool writes to --output_dir:

    scores.json      all scores with their bootstrap confidence intervals; the bootstrap draws
                     examples, sentences or questions
    report.txt       the scores; the confusion matrix, for tags that of the labels of the words; and
                     the worst errors: the examples whose wrong prediction was most certain, the
                     sentences with the most errors, or the answers with the lowest scores
    confusion.png    the confusion matrix as a picture; for classes also roc.png,
                     precision_recall.png and calibration.png
"""

import os

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.config import REGRESSION
from bert_tf.errors import UserError
from bert_tf.tasks.token_classification.files import TAG_FILE_FORMATS
from bert_tf.tools.common import evaluations, result_files, tool
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.task_flags import given_labels, read_examples, targets_of, task_from_flags

define_flags(f"""
    kind (classes|tags|answers, classes): The kind of the predictions.
    predictions_file (list): The file with the predictions. With --kind=classes, the predictions of
        several files are averaged.
    split (train|dev|test, test): With --kind=classes: the file of the task with the gold labels.
    gold_file (str): With --kind=answers: the SQuAD file. With --kind=tags: the file with the gold
        tags, if they are not in --predictions_file.
    format ({"|".join(TAG_FILE_FORMATS)}, conll): With --kind=tags: the format of --gold_file, as in
        run_ner.py.
    word_column (int, 0): With --kind=tags: the column of the words in --gold_file, counted from 0.
    tag_column (int, {-1}): With --kind=tags: the column of the gold tags in --gold_file, counted
        from 0; -1 is the last.
    version_2_with_negative (bool): With --kind=answers: whether to score by the rules of SQuAD 2.0.
        Default: true if the file has a question without an answer.
    output_dir (str): The directory to write the scores and the report to.
    bootstrap_samples (int >= 1, 1000): Number of samples of the bootstrap.
    confidence (float 0.01 to 0.999, 0.95): Confidence level of the intervals.
    worst_errors (int >= 0, 20): Maximum number of errors to list.
    threshold (float 0 to 1): With --kind=classes: the smallest probability of the second of two
        labels, or of each of several labels, with which a text gets it. Default: the most probable
        label; 0.5 for several labels.
    plot (bool, true): Whether to write the pictures, which need matplotlib.
    seed (int, 0): Seed of the bootstrap.
""")

_NEEDED = {"classes": ("task_name", "data_dir"), "tags": (), "answers": ("gold_file",)}


def evaluated():
    """Returns the `Evaluation` of the files that the flags name."""
    from bert_tf.tasks.question_answering.files import read_answers, read_squad
    from bert_tf.tasks.text_classification.files import read_predictions
    from bert_tf.tasks.token_classification.files import read_tag_predictions
    from bert_tf.training.evaluation.scores import require_scikit_learn

    options = options_of("confidence", "seed", samples="bootstrap_samples")
    options["num_errors"] = FLAGS.worst_errors
    predictions_file = FLAGS.predictions_file[0]
    if FLAGS.kind == "tags":
        _require_plotting()
        layout = options_of("format", "word_column", "tag_column")
        columns = read_tag_predictions(predictions_file, FLAGS.gold_file, **layout)
        return evaluations.of_tags(*columns, **options)
    if FLAGS.kind == "answers":
        examples = read_squad(FLAGS.gold_file)
        answers = read_answers(predictions_file, examples)
        version_2 = FLAGS.version_2_with_negative
        if version_2 is None:
            version_2 = any(example.is_impossible for example in examples)
        return evaluations.of_answers(examples, answers, version_2, **options)
    require_scikit_learn()
    task = task_from_flags()
    is_regression = task.problem_type == REGRESSION
    if not is_regression:
        _require_plotting()
    examples = read_examples(task, FLAGS.split, given_labels())
    labels = None if is_regression else given_labels() or task.labels
    if labels is None and not is_regression:
        raise UserError(
            "--labels must be set to the labels in the order of the predictions' columns, which "
            "run_classifier.py prints. Received: none. The file has the labels "
            f"{task.label_list(examples)}"
        )
    predictions = [
        read_predictions(path, examples, labels, task.problem_type)
        for path in FLAGS.predictions_file
    ]
    predicted = np.mean(predictions, axis=0)
    gold = targets_of(examples, labels, task.problem_type)
    options["threshold"] = FLAGS.threshold
    return evaluations.of_classes(examples, gold, predicted, labels, task, **options)


def _require_plotting():
    if FLAGS.plot:
        require_package("matplotlib", "pictures; --noplot leaves them out")


def report_lines(evaluation):
    """Returns the lines of report.txt."""
    width = max(12, *map(len, evaluation.results))
    lines = [
        f"{evaluation.counted}; intervals: bootstrap, {FLAGS.bootstrap_samples} draws, "
        f"{100 * FLAGS.confidence:g} %"
    ]
    for name, value in evaluation.results.items():
        interval = ""
        if name in evaluation.intervals:
            low, high = evaluation.intervals[name]
            interval = f"  [{low:.4f}, {high:.4f}]"
        official = "  (official)" if name in evaluation.official else ""
        shown = f"{value:8d}" if isinstance(value, int) else f"{value:8.4f}"
        lines.append(f"{name:{width}s} {shown}{interval}{official}")
    if evaluation.lines:
        lines += ["", *evaluation.lines]
    if evaluation.errors:
        lines += ["", f"worst errors: {evaluation.columns}", *evaluation.errors]
    return lines


def main():
    for name in _NEEDED[FLAGS.kind]:
        if not FLAGS[name].value:
            raise UserError(f"--{name} must be set with --kind={FLAGS.kind}. Received: none")
    if FLAGS.kind != "classes" and len(FLAGS.predictions_file) > 1:
        raise UserError(
            f"--predictions_file must be one file with --kind={FLAGS.kind}. Received: "
            f"{','.join(FLAGS.predictions_file)}"
        )
    tool.require_writable(FLAGS.output_dir, "output_dir")
    evaluation = evaluated()
    lines = report_lines(evaluation)
    result_files.write_lines(os.path.join(FLAGS.output_dir, "report.txt"), lines)
    scores = {name: {"value": value} for name, value in evaluation.results.items()}
    for name, (low, high) in evaluation.intervals.items():
        scores[name] |= {"low": low, "high": high}
    result_files.write_json(os.path.join(FLAGS.output_dir, "scores.json"), scores, indent=2)
    print(*lines, sep="\n")
    if FLAGS.plot:
        evaluation.save_pictures(FLAGS.output_dir)
    print_result("report", os.path.join(FLAGS.output_dir, "report.txt"))


if __name__ == "__main__":
    tool.run(main, "predictions_file", "output_dir")
