"""Fine-tunes, evaluates and exports a text classifier on real data, from start to end.

    python -m research.demo --num_train_epochs=2 --work_dir=.cache/demo

`make demo` runs this tool. It fetches the weights of MiniLM and a corpus of film reviews, splits
the reviews by film, fine-tunes the model, compares it with two baselines on held-out films, exports
a SavedModel, and opens it in a process that does not import bert_tf. Every step is the command of
another tool, which is printed before it runs.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import time

import numpy as np
from absl import flags

from bert_tf.base import quiet
from bert_tf.errors import UserError
from bert_tf.inputs.tables.tsv import read_tsv
from bert_tf.tools.common import tool

from .corpora import MATERIALS_DIRECTORY
from .corpora.film_reviews import LABELS

FLAGS = flags.FLAGS

_REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BOOTSTRAP_SAMPLES = 500

flags.DEFINE_string(
    "work_dir", os.path.join(_REPOSITORY, ".cache", "demo"), "The directory to write to."
)
flags.DEFINE_string(
    "materials_dir", MATERIALS_DIRECTORY, "The directory for the downloaded weights and reviews."
)
flags.DEFINE_float(
    "num_train_epochs", 2.0, "Number of training epochs; at least 1.", lower_bound=1.0
)

# The program that opens the SavedModel: with tensorflow and tensorflow_text, without bert_tf.
_OPEN_SAVED_MODEL = """
import sys
import tensorflow as tf
import tensorflow_text
assert "bert_tf" not in sys.modules
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = serve(text=tf.constant(sys.argv[2:]))
for text, label, probabilities in zip(sys.argv[2:], outputs["label"], outputs["probabilities"]):
    print(f"  {label.numpy().decode():7s} {max(probabilities.numpy()):.3f}  {text}")
"""
_SENTENCES = (
    "A quiet, beautifully acted film that stays with you for days.",
    "Two hours of noise without a single idea.",
    "The jokes fall flat and the ending makes no sense.",
    "An instant classic; I laughed, I cried, I went back the next evening.",
)


def step(title, command):
    """Prints and runs one command, whose output is not captured."""
    print(f"\n=== {title}\n$ python {command}", flush=True)
    start = time.monotonic()
    result = subprocess.run([sys.executable, *shlex.split(command)], cwd=_REPOSITORY)
    if result.returncode:
        raise UserError(
            f"The step `{title}` must end with exit status 0. Received: {result.returncode}. See "
            "its messages above."
        )
    print(f"({time.monotonic() - start:.0f} s)", flush=True)


def read_split(directory, split):
    rows = [fields for _, fields in read_tsv(os.path.join(directory, f"{split}.tsv"))]
    texts = [text for text, _ in rows]
    return texts, np.array([LABELS.index(label) for _, label in rows])


def auc_intervals(labels, ours, theirs):
    """Returns the 95 % bootstrap intervals of AUC(ours) and of AUC(ours) - AUC(theirs)."""
    from sklearn.metrics import roc_auc_score

    from bert_tf.training.evaluation.scores import drawn_intervals

    def scores(rows):
        if labels[rows].min() == labels[rows].max():
            return {}  # the AUC is not defined
        auc, other = (roc_auc_score(labels[rows], part[rows]) for part in (ours, theirs))
        return {"auc": auc, "difference": auc - other}

    intervals = drawn_intervals(scores, len(labels), _BOOTSTRAP_SAMPLES)
    return intervals["auc"], intervals["difference"]


def report(reviews, output_dir):
    """Prints the scores of the model and two baselines on the held-out films.

    Returns the lower end of the 95 % interval of the model's AUC minus that of TF-IDF.
    """
    from sklearn.metrics import f1_score, roc_auc_score

    from bert_tf.training import all_scores
    from bert_tf.training.callbacks.held_out_scores import best_threshold

    from .tf_idf import baseline

    texts, labels = zip(*(read_split(reviews, split) for split in ("train", "dev", "test")))
    train_labels, dev_labels, test_labels = labels
    bert_dev, bert = (
        np.loadtxt(os.path.join(output_dir, f"{split}_results.tsv"))[:, 1]
        for split in ("dev", "test")
    )
    model = baseline().fit(texts[0], train_labels)
    tf_idf_dev, tf_idf = (model.predict_proba(held_out)[:, 1] for held_out in texts[1:])
    majority = np.full(len(test_labels), float(train_labels.mean() >= 0.5))

    print(
        f"\n=== Held-out films: {len(test_labels)} reviews. The thresholds are those from 0.01 to "
        "0.99 with the best F1 on the dev films."
    )
    print(f"{'':24s}{'accuracy':>9s}{'F1':>8s}{'AUC':>8s}{'threshold':>11s}{'F1 there':>10s}")
    for name, probabilities, dev in (
        ("majority", majority, None),
        ("TF-IDF + logistic", tf_idf, tf_idf_dev),
        ("bert_tf (MiniLM)", bert, bert_dev),
    ):
        scores = all_scores(test_labels, np.stack([1 - probabilities, probabilities], axis=1))
        line = f"{name:24s}{scores['accuracy']:9.3f}{scores['f1']:8.3f}{scores['auc']:8.3f}"
        if dev is not None:
            threshold, _ = best_threshold(dev_labels, dev)
            line += f"{threshold:11.2f}{f1_score(test_labels, probabilities >= threshold):10.3f}"
        print(line)
    print("\nAUC of bert_tf, and AUC minus that of TF-IDF, with 95 % bootstrap intervals:")
    for split, split_labels, ours, theirs in (
        ("dev", dev_labels, bert_dev, tf_idf_dev),
        ("test", test_labels, bert, tf_idf),
    ):
        (low, high), (least, most) = auc_intervals(split_labels, ours, theirs)
        auc = roc_auc_score(split_labels, ours)
        print(f"{split:4s} films: {auc:.3f} [{low:.3f}, {high:.3f}]; [{least:+.3f}, {most:+.3f}]")
    return least


def main():
    start = time.monotonic()
    tool.require_writable(FLAGS.work_dir, "work_dir")
    work_dir, materials = map(shlex.quote, (FLAGS.work_dir, FLAGS.materials_dir))
    step(
        "Download the weights and the reviews",
        f"-m research.fetch_materials --materials=minilm,film_reviews --directory={materials}",
    )
    step(
        "Split the reviews by film",
        "-m research.prepare_classification_data --dataset=film_reviews "
        f"--materials_dir={materials} --output_dir={work_dir}/reviews",
    )
    step(
        "Fine-tune, with scores on the dev films, and predict the dev and test films",
        f"-m bert_tf.tools.run_classifier --task_name=simple --labels={','.join(LABELS)} "
        f"--data_dir={work_dir}/reviews --output_dir={work_dir}/out "
        f"--init_checkpoint={materials}/minilm --do_train --pooling=mean "
        f"--num_train_epochs={FLAGS.num_train_epochs} "
        "--do_predict --predict_split=dev --predict_split=test --predict_batch_size=64",
    )
    low = report(os.path.join(FLAGS.work_dir, "reviews"), os.path.join(FLAGS.work_dir, "out"))
    step(
        "Export a SavedModel",
        f"-m bert_tf.tools.export_saved_model --model_dir={work_dir}/out/model "
        f"--export_dir={work_dir}/saved_model",
    )
    with contextlib.nullcontext() if tool.is_verbose() else quiet.filtered_stderr():
        step(
            "Open the SavedModel with tensorflow and tensorflow_text only",
            f"-c {shlex.quote(_OPEN_SAVED_MODEL)} {work_dir}/saved_model/1 "
            f"{shlex.join(_SENTENCES)}",
        )
    print(f"\nThe demo took {time.monotonic() - start:.0f} s.")
    if low <= 0:
        raise UserError(
            "The fine-tuned model must be better than TF-IDF: the 95 % interval of the AUC "
            f"difference must be above 0. Received: a lower end of {low:+.3f}"
        )


if __name__ == "__main__":
    tool.run(main)
