r"""Trains and scores a baseline for tagging without a network: a linear-chain CRF by CRFsuite.

    pip install 'bert-tf[baselines,tagging]'
    python -m research.baseline_ner --data_dir=news --output_dir=news_baseline

Reads train.txt and test.txt (CoNLL columns) as bert-tf run_ner does. The features of a word are
the words at a distance of up to two, the pairs of neighbours among them, and the kinds of their
characters.

The tool writes to --output_dir, in the formats of bert-tf run_ner:

    model.crfsuite          the trained model
    test_results.txt        the scores of test.txt
    test_predictions.txt    the predicted tags
"""

import os
import time

from absl import flags

from bert_tf.base.files import atomic_path
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError
from bert_tf.tasks.token_classification.files import conll_lines, read_conll
from bert_tf.tasks.token_classification.tag_schemes import are_span_tags, convert_tags
from bert_tf.tools.common import result_files, tool

FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "The directory with train.txt and test.txt.")
flags.DEFINE_string("output_dir", None, "The directory to write the model and the results to.")
flags.DEFINE_float("l1", 0.05, "Weight of the L1 penalty.", lower_bound=0.0)
flags.DEFINE_float("l2", 0.01, "Weight of the L2 penalty.", lower_bound=0.0)
flags.DEFINE_integer(
    "max_iterations", 100, "Maximum number of iterations of L-BFGS.", lower_bound=1
)

WINDOW = 2
EDGE = "\0"  # the word at positions outside of the sentence


def features_of(words):
    """Returns the features of each word for the CRF, as lists of strings."""
    padded = [EDGE] * WINDOW + list(words) + [EDGE] * WINDOW
    kinds = [_kind(word) for word in padded]
    rows = []
    for place in range(len(words)):
        offsets = range(2 * WINDOW + 1)
        row = [f"{offset}={padded[place + offset]}" for offset in offsets]
        row += [
            f"{offset}:={padded[place + offset]}|{padded[place + offset + 1]}"
            for offset in offsets[:-1]
        ]
        row.append("kinds=" + "".join(kinds[place : place + len(offsets)]))
        rows.append(row)
    return rows


def _kind(word):
    if word == EDGE:
        return "_"
    if word.isdecimal():
        return "0"
    if word.isascii() and word.isalpha():
        return "A" if word[0].isupper() else "a"
    return "w" if word.isalnum() else "."


def read(split):
    path = os.path.join(FLAGS.data_dir, f"{split}.txt")
    sentences = read_conll(path)
    if sentences[0].tags is None:
        raise DataError(f"{path} must have a tag for every word. Received: words without tags")
    tags = [sentence.tags for sentence in sentences]
    if all(are_span_tags(row) for row in tags):
        tags = [convert_tags(row, "IOB2") for row in tags]
    return [sentence.words for sentence in sentences], tags


def main():
    pycrfsuite = require_package("pycrfsuite", "a CRF")
    from bert_tf.tasks.token_classification import tagging_scores

    tool.require_writable(FLAGS.output_dir, "output_dir")
    train, (words, gold) = read("train"), read("test")
    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"c1": FLAGS.l1, "c2": FLAGS.l2, "max_iterations": FLAGS.max_iterations})
    for sentence, tags in zip(*train):
        trainer.append(features_of(sentence), tags)
    start = time.monotonic()
    with atomic_path(os.path.join(FLAGS.output_dir, "model.crfsuite")) as path:
        trainer.train(path)
    print(f"trained in {time.monotonic() - start:.0f} s")
    tagger = pycrfsuite.Tagger()
    tagger.open(os.path.join(FLAGS.output_dir, "model.crfsuite"))
    predicted = [tagger.tag(features_of(sentence)) for sentence in words]
    lines = [f"test_{key} = {value:.6f}" for key, value in tagging_scores(gold, predicted).items()]
    result_files.report(lines, "test_results.txt", "Test")
    path = os.path.join(FLAGS.output_dir, "test_predictions.txt")
    result_files.write_text(path, conll_lines(zip(words, gold, predicted)))


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "output_dir"])
    tool.run(main)
