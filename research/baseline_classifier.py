r"""Trains and scores a baseline without a network: a linear model on TF-IDF features.

    python -m research.baseline_classifier --task_name=simple --data_dir=reviews \
        --output_dir=baseline

The model is a logistic regression by scikit-learn on words and word pairs; one per label for
several labels, and a ridge regression for numbers. The texts of a pair are joined. The tasks and
files are those of bert-tf run_classifier.

The tool writes to --output_dir, in the formats of bert-tf run_classifier:

    eval_results.txt                      the scores of --eval_split
    dev_results.tsv, test_results.tsv     the predictions for --eval_split
"""

import os

import numpy as np
from absl import flags

from bert_tf.config import REGRESSION
from bert_tf.tools.common import result_files, tool
from bert_tf.tools.common.task_flags import given_labels, read_examples, targets_of, task_from_flags

from . import tf_idf

FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "The directory to write the results to.")
flags.DEFINE_enum(
    "analyzer",
    "word",
    tf_idf.ANALYZERS,
    "The features: words and word pairs, or characters and character pairs (for Chinese).",
)
flags.DEFINE_enum(
    "eval_split", "dev", ["dev", "test"], "The file of the task to score; it must have labels."
)


def texts_of(examples):
    return [" ".join(filter(None, (example.text_a, example.text_b))) for example in examples]


def main():
    from bert_tf.training.evaluation.scores import all_scores, require_scikit_learn

    require_scikit_learn()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    task = task_from_flags()
    labels = given_labels() or task.labels
    train = read_examples(task, "train", labels)
    labels = labels or task.label_list(train)
    held_out = read_examples(task, FLAGS.eval_split, labels)

    kind = task.problem_type
    model = tf_idf.baseline(kind, FLAGS.analyzer)
    model.fit(texts_of(train), targets_of(train, labels, kind))
    texts = texts_of(held_out)
    if kind == REGRESSION:
        predicted = model.predict(texts)
    else:
        predicted = np.zeros([len(texts), len(labels)])  # 0 for classes without training data
        predicted[:, model.classes_] = model.predict_proba(texts)
    results = all_scores(targets_of(held_out, labels, kind), predicted, kind)
    result_files.report(result_files.score_lines(results))
    path = os.path.join(FLAGS.output_dir, f"{FLAGS.eval_split}_results.tsv")
    result_files.write_table(path, predicted)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "output_dir"])
    tool.run(main)
