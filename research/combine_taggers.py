r"""Adds what a CRF on features and a network know of each word's tag, and scores the best paths.

    python -m research.combine_taggers --data_dir=news --crf=news_baseline/model.crfsuite \
        --model_dir=ner/model --output_dir=both

The score of a tag at a word is the network's, plus --weights times the logarithm of the tag's
probability in the CRF of research.baseline_ner. The network's own CRF has the transitions. dev.txt
chooses the weight, and test.txt is read once. The tool writes `test_results.txt` and
`test_predictions.txt`, as that program does.
"""

import os

import numpy as np
from absl import flags

import bert_tf
from bert_tf.base.optional_packages import require_package
from bert_tf.inputs.columns import flat_strings
from bert_tf.tasks.token_classification import tagging_scores
from bert_tf.tasks.token_classification.files import conll_lines
from bert_tf.tasks.token_classification.word_windows import WordWindows
from bert_tf.tools.common import result_files, tool
from bert_tf.training.traced_steps import predict_rows

from . import baseline_ner

FLAGS = flags.FLAGS

flags.DEFINE_string("crf", None, "The file that research.baseline_ner wrote.")
flags.DEFINE_string("model_dir", None, "The directory of a trained `BertTokenClassifier`.")
flags.DEFINE_list("weights", ["0", "0.5", "1", "1.5", "2", "3", "4"], "The weights to try.")

_LEAST = 1e-6  # a probability of the CRF below it counts as this


def network_scores(model, sentences):
    """Returns the logits of the tags of each word, float32 `[words, tags]` per sentence."""
    words, row_splits = flat_strings(sentences)
    rows = WordWindows(
        model.tokenizer,
        words,
        row_splits,
        model.max_sequence_length,
        space_before_all_words=model.space_before_all_words,
    )
    logits = rows.marked_values(predict_rows(model, rows, 64, 0))
    return np.split(logits, np.cumsum([len(sentence) for sentence in sentences])[:-1])


def crf_scores(path, labels, sentences):
    """Returns the log-probabilities of the tags of each word by CRFsuite, in the same form."""
    tagger = require_package("pycrfsuite", "a CRF").Tagger()
    tagger.open(path)
    known = set(tagger.labels())
    found = []
    for sentence in sentences:
        tagger.set(baseline_ner.features_of(sentence))
        probabilities = [
            [tagger.marginal(label, place) if label in known else 0.0 for label in labels]
            for place in range(len(sentence))
        ]
        found.append(np.log(np.maximum(np.array(probabilities, np.float32), _LEAST)))
    return found


def best_paths(model, scores):
    """Returns the tags of the best path of each sentence, for scores `[words, tags]` of each."""
    import tensorflow as tf

    found = []
    for start in range(0, len(scores), 64):
        rows = tf.ragged.stack(scores[start : start + 64])  # [B, (words), tags]
        mask = tf.sequence_mask(rows.row_lengths())
        tags = model.crf(rows.to_tensor(), mask).numpy()
        found += [tags[row, : len(part)] for row, part in enumerate(scores[start : start + 64])]
    return [[model.labels[tag] for tag in path] for path in found]


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    model = bert_tf.BertTokenClassifier.from_pretrained(FLAGS.model_dir)

    def read(split):
        sentences, gold = baseline_ner.read(split)
        parts = network_scores(model, sentences), crf_scores(FLAGS.crf, model.labels, sentences)
        return sentences, gold, parts

    def tagged(parts, weight):
        return best_paths(model, [ours + weight * theirs for ours, theirs in zip(*parts)])

    _, gold, parts = read("dev")
    on_dev = {
        weight: tagging_scores(gold, tagged(parts, weight))["f1"]
        for weight in map(float, FLAGS.weights)
    }
    for weight, score in on_dev.items():
        print(f"dev, weight {weight}: F1 {score:.4f}", flush=True)
    best = max(on_dev, key=on_dev.get)
    words, gold, parts = read("test")
    predicted = tagged(parts, best)
    lines = [f"test_{key} = {value:.6f}" for key, value in tagging_scores(gold, predicted).items()]
    result_files.report(lines, "test_results.txt", "Test")
    path = os.path.join(FLAGS.output_dir, "test_predictions.txt")
    result_files.write_text(path, conll_lines(zip(words, gold, predicted)))


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "crf", "model_dir", "output_dir"])
    tool.run(main)
