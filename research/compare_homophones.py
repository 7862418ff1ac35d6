r"""Compares models that say which of two sentences is more probable: a true one and one misheard.

    pip install jieba pypinyin
    python -m research.prepare_classification_data --dataset=chinese_reviews --output_dir=reviews
    bert-tf run_pretraining --objective=mlm --do_train --input_file=reviews/pretraining_text.txt \
        --vocab_file=vocab.txt --bert_config_file=config.json --output_dir=lm
    python -m research.compare_homophones --text_dir=reviews --model_dir=lm/model \
        --output_dir=homophones

A pair is a sentence of test.tsv and the same sentence with one word replaced by another that is
pronounced the same apart from tones, has the same length and is at least --min_count times in the
training text. The models are BERT (`BertMaskedLM.score`, pseudo-log-likelihood) and a trigram model
of the characters of the same training text, with Kneser-Ney smoothing. The tool prints the share of
pairs whose true sentence is more probable, and writes the pairs with both differences of the
log-probabilities to pairs.tsv in --output_dir.
"""

import os

from absl import flags

from bert_tf.errors import user_error
from bert_tf.inputs.tables.tsv import read_lines, read_tsv
from bert_tf.tools.common import result_files, tool

from .character_trigrams import CharacterTrigrams
from .homophones import make_pairs, shares

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "text_dir", None, "The directory with pretraining_text.txt, and --split.tsv with texts first."
)
flags.DEFINE_string("model_dir", None, "The pre-trained masked language model.")
flags.DEFINE_string("output_dir", None, "The directory to write the results to.")
flags.DEFINE_string("split", "test", "The file to make the pairs of.")
flags.DEFINE_integer("num_pairs", 200, "Number of pairs.")
flags.DEFINE_integer("min_count", 20, "How often the other word is at least in the training text.")
flags.DEFINE_integer("seed", 0, "Seed of the pairs.")

EXAMPLE = ("我忘带伞了", "我网袋散了")


def main():
    from bert_tf import BertMaskedLM
    from bert_tf.inputs.long_texts import split_sentences
    from bert_tf.text import jieba_segmenter

    segmenter = jieba_segmenter()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    path = os.path.join(FLAGS.text_dir, "pretraining_text.txt")
    training = [text for _, text in read_lines(path) if text]
    held_out = read_tsv(os.path.join(FLAGS.text_dir, f"{FLAGS.split}.tsv"))
    sentences = [sentence for _, (text, *_) in held_out for sentence in split_sentences(text)]
    options = (FLAGS.num_pairs, FLAGS.min_count, FLAGS.seed)
    made = make_pairs(training, sentences, segmenter, *options)
    if not made:
        expected = "have sentences that are not in the training text, with words that sound alike"
        raise user_error(f"{FLAGS.split}.tsv", expected, "none. Pass a smaller --min_count.")
    pairs = [EXAMPLE, *made]

    trigrams = CharacterTrigrams(training)
    model = BertMaskedLM.from_pretrained(FLAGS.model_dir)
    scores = model.score([sentence for pair in pairs for sentence in pair]).reshape(-1, 2)
    rows = []
    for pair, (true, misheard) in zip(pairs, scores.tolist(), strict=True):
        difference = trigrams.score(pair[0]) - trigrams.score(pair[1])
        rows.append((*pair, true - misheard, difference))
    lines = (f"{a}\t{b}\t{bert:.3f}\t{trigram:.3f}" for a, b, bert, trigram in rows)
    result_files.write_lines(os.path.join(FLAGS.output_dir, "pairs.tsv"), lines)
    print("{}, not {}: BERT {:+.2f}, trigrams {:+.2f}".format(*rows[0]))
    result_files.report(result_files.score_lines(shares(rows[1:]), "test_"), "shares.txt", "Test")


if __name__ == "__main__":
    flags.mark_flags_as_required(["text_dir", "model_dir", "output_dir"])
    tool.run(main)
