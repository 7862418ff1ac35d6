r"""Trains and scores a baseline without a network: a linear model on TF-IDF features.

    python -m research.baseline_classifier --task_name=simple --data_dir=reviews \
        --output_dir=baseline

The model is a logistic regression by scikit-learn on words and word pairs; one per label for
several labels, and a ridge regression for numbers. The texts of a pair are joined. The tasks and
files are those of bert-tf run_classifier. --tune also tries n-grams of up to three and other
regularizations, and takes those with the smallest loss on dev.

The tool writes to --output_dir, in the formats of bert-tf run_classifier:

    eval_results.txt                      the scores of --eval_split
    dev_results.tsv, test_results.tsv     the predictions for --eval_split
"""

import itertools
import math
import os

import numpy as np
from absl import flags

from bert_tf.tools.common import result_files, tool
from bert_tf.tools.common.task_flags import given_labels, read_examples, targets_of, task_from_flags

from . import tf_idf

FLAGS = flags.FLAGS

_TUNED_C = (1.0, 3.0, 10.0, 30.0)

flags.DEFINE_string("output_dir", None, "The directory to write the results to.")
flags.DEFINE_enum(
    "analyzer",
    "word",
    tf_idf.ANALYZERS,
    "The features: words and word pairs, or characters and character pairs (for Chinese).",
)
flags.DEFINE_bool("tune", False, "Whether dev chooses the longest n-grams and the regularization.")
flags.DEFINE_enum(
    "eval_split", "dev", ["dev", "test"], "The file of the task to score; it must have labels."
)


def texts_of(examples):
    return [" ".join(filter(None, (example.text_a, example.text_b))) for example in examples]


def predict(model, examples, labels):
    """Returns probabilities `[n, C]`, or with a ridge regression numbers `[n]`."""
    texts = texts_of(examples)
    if not hasattr(model, "predict_proba"):
        return model.predict(texts)
    predicted = np.zeros([len(texts), len(labels)])  # 0 for classes without training data
    predicted[:, model.classes_] = model.predict_proba(texts)
    return predicted


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
    dev = read_examples(task, "dev", labels) if FLAGS.tune else ()
    best_loss, model = math.inf, None
    for longest, C in itertools.product((2, 3), _TUNED_C) if FLAGS.tune else [(2, 1.0)]:
        tried = tf_idf.baseline(kind, FLAGS.analyzer, longest, C)
        tried.fit(texts_of(train), targets_of(train, labels, kind))
        if FLAGS.tune:
            scores = all_scores(targets_of(dev, labels, kind), predict(tried, dev, labels), kind)
            print(f"n-grams up to {longest}, C={C:g}: loss {scores['loss']:.4f} on dev")
            if scores["loss"] >= best_loss:
                continue
            best_loss = scores["loss"]
        model = tried
    predicted = predict(model, held_out, labels)
    results = all_scores(targets_of(held_out, labels, kind), predicted, kind)
    result_files.report(result_files.score_lines(results))
    path = os.path.join(FLAGS.output_dir, f"{FLAGS.eval_split}_results.tsv")
    result_files.write_table(path, predicted)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "output_dir"])
    tool.run(main)
