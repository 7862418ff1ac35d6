r"""Scores predictions against gold labels, with confidence intervals and the worst errors.

Classes, several labels per example, or numbers (--kind=classes, the default):

    bert-tf evaluate --task_name=sst-2 --data_dir=SST-2 --split=dev \
      --predictions_file=out/dev_results.tsv --output_dir=evaluation

The gold labels are those of the task's file; the flags for it are those of
bert-tf run_classifier. The predictions are the .tsv file that bert-tf run_classifier
--do_predict writes (one line per example: the probabilities of the labels in the order of --labels,
or a number), or a .jsonl file with `probabilities`, `label` or `score`, and optionally `id`. The
predictions of several models are averaged: --predictions_file=a.tsv,b.tsv.

Tags of words (--kind=tags): the predictions are the columns that bert-tf run_ner writes (word,
gold tag, predicted tag), or any CoNLL columns with the predicted tag last, and the gold tags in
--gold_file:

    bert-tf evaluate --kind=tags --predictions_file=out/test_predictions.txt \
      --output_dir=evaluation

Answers (--kind=answers): a SQuAD file and `predictions.json`:

    bert-tf evaluate --kind=answers --gold_file=dev-v1.1.json \
      --predictions_file=out/predictions.json --output_dir=evaluation

Generated texts (--kind=texts): a text per line, and one or several files of references; or a .jsonl
file with both, such as eval_predictions.jsonl of bert-tf run_translation:

    bert-tf evaluate --kind=texts --predictions_file=out/test_predictions.txt \
      --gold_file=references_1.txt --gold_file=references_2.txt --output_dir=evaluation

The tool writes to --output_dir:

    scores.json      all scores with their bootstrap confidence intervals; the bootstrap draws
                     examples, sentences, questions or texts
    report.txt       the scores; the confusion matrix, for tags that of the labels of the words; and
                     the worst errors: the examples whose wrong prediction was most certain, the
                     sentences with the most errors, or the answers or texts with the lowest
                     scores
    confusion.png    the confusion matrix as a picture; for classes also roc.png,
                     precision_recall.png and calibration.png
"""

import os

from bert_tf.config import REGRESSION
from bert_tf.tools.common import evaluations, result_files, scored_files, tool
from bert_tf.tools.common.checks import flag_error, options_of
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.task_flags import task_from_flags

define_flags("""
    kind (classes|tags|answers|texts, classes): The kind of the predictions.
    predictions_file (list): The file with the predictions. With --kind=classes, the predictions of
        several files are averaged.
""")
scored_files.define_gold()
define_flags("""
    output_dir (str): The directory to write the scores and the report to.
    bootstrap_samples (int >= 1, 1000): Number of samples of the bootstrap.
    confidence (float 0.01 to 0.999, 0.95): Confidence level of the intervals.
    worst_errors (int >= 0, 20): Maximum number of errors to list.
    plot (bool, true): Whether to write the pictures, which need matplotlib.
    seed (int, 0): Seed of the bootstrap.
""")


def evaluated():
    """Returns the `Evaluation` of the files that the flags name."""
    options = options_of("confidence", "seed", samples="bootstrap_samples")
    options["num_errors"] = FLAGS.worst_errors
    predictions_file = FLAGS.predictions_file[0]
    if FLAGS.kind == "tags":
        scored_files.require_plotting()
        columns = scored_files.read_tags(predictions_file)
        return evaluations.of_tags(*columns, FLAGS.strict_scheme, **options)
    if FLAGS.kind == "answers":
        return evaluations.of_answers(*scored_files.read_answers(predictions_file), **options)
    if FLAGS.kind == "texts":
        columns = scored_files.read_texts(predictions_file)
        return evaluations.of_texts(*columns, FLAGS.tokenize, **options)
    if task_from_flags().problem_type != REGRESSION:
        scored_files.require_plotting()
    options["threshold"] = FLAGS.threshold
    return evaluations.of_classes(*scored_files.read_classes(*FLAGS.predictions_file), **options)


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
    scored_files.check_flags()
    if FLAGS.kind != "classes" and len(FLAGS.predictions_file) > 1:
        raise flag_error("predictions_file", f"must be one file with --kind={FLAGS.kind}")
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
