r"""Compares models that say which of two sentences is more probable: a true one and one misheard.

    pip install jieba pypinyin
    python -m research.prepare_classification_data --dataset=chinese_reviews --output_dir=reviews
    bert-tf run_pretraining --objective=mlm --input_file=reviews/pretraining_text.txt … \
        --output_dir=lm
    python -m research.compare_homophones --text_dir=reviews --model_dir=lm/model \
        --output_dir=homophones

A pair is a sentence of test.tsv and the same sentence with one word replaced by another that is
pronounced the same apart from tones, has the same length and is at least --min_count times in the
training text. The models are BERT (`BertMaskedLM.score`, pseudo-log-likelihood) and a trigram model
of the characters of the same training text, with Kneser-Ney smoothing. The tool prints the share of
pairs whose true sentence is more probable, and writes the pairs with both differences of the
log-probabilities to pairs.tsv in --output_dir.
"""

import collections
import os
import random

from absl import flags

from bert_tf.inputs.long_texts import split_sentences
from bert_tf.inputs.tables.tsv import read_lines, read_tsv
from bert_tf.tools.common import result_files, tool

from .character_trigrams import CharacterTrigrams
from .corpora.character_parts import is_ideograph, require_chinese_package

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
_LENGTHS = range(6, 33)  # characters of a sentence
# Words of a set are exchanged in correct sentences, or by those who write them.
_INTERCHANGEABLE = ("他她它", "的地得", "做作", "那哪", "象像")


def homophones(counts, min_count):
    """Returns the words of at least `min_count`, by their syllables without tones."""
    pypinyin = require_chinese_package("pypinyin")
    words = collections.defaultdict(list)
    for word, count in counts.items():
        if count >= min_count and all(map(is_ideograph, word)):
            words[tuple(pypinyin.lazy_pinyin(word))].append(word)
    return words


def mishear(words, by_sound, counts, generator):
    """Returns the words with one replaced by a homophone, or None if none has any.

    More frequent homophones are chosen more often.
    """
    pypinyin = require_chinese_package("pypinyin")
    choices = []
    for place, word in enumerate(words):
        others = by_sound.get(tuple(pypinyin.lazy_pinyin(word)), ())
        others = [other for other in others if other != word and not _is_same(other, word)]
        if others:
            choices.append((place, others))
    if not choices:
        return None
    place, others = generator.choice(choices)
    (other,) = generator.choices(others, [counts[other] for other in others])
    return [*words[:place], other, *words[place + 1 :]]


def _is_same(other, word):
    """Returns whether words differ only in characters that are exchanged."""
    return all(
        a == b or any(a in group and b in group for group in _INTERCHANGEABLE)
        for a, b in zip(other, word, strict=True)
    )


def make_pairs(training, sentences, cut):
    """Returns pairs of a true and a misheard sentence, of different true sentences."""
    generator = random.Random(FLAGS.seed)
    counts = collections.Counter(word for text in training for word in cut(text))
    by_sound, known = homophones(counts, FLAGS.min_count), set("".join(training))
    seen = set(training)
    sentences = [s for s in dict.fromkeys(sentences) if s not in seen and known.issuperset(s)]
    generator.shuffle(sentences)
    pairs = []
    for sentence in sentences:
        if len(sentence) in _LENGTHS and len(pairs) < FLAGS.num_pairs:
            misheard = mishear(list(cut(sentence)), by_sound, counts, generator)
            if misheard:
                pairs.append((sentence, "".join(misheard)))
    return pairs


def main():
    from bert_tf import BertMaskedLM
    from bert_tf.text import jieba_segmenter

    segmenter = jieba_segmenter()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    path = os.path.join(FLAGS.text_dir, "pretraining_text.txt")
    training = [text for _, text in read_lines(path) if text]
    held_out = read_tsv(os.path.join(FLAGS.text_dir, f"{FLAGS.split}.tsv"))
    sentences = [sentence for _, (text, *_) in held_out for sentence in split_sentences(text)]
    pairs = [EXAMPLE, *make_pairs(training, sentences, segmenter)]

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


def shares(rows):
    """Returns the shares of pairs, of rows that end with the differences of BERT and trigrams."""
    right = collections.Counter((bert > 0, trigram > 0) for *_, bert, trigram in rows)
    return {
        "bert": (right[True, True] + right[True, False]) / len(rows),
        "trigrams": (right[True, True] + right[False, True]) / len(rows),
        "bert_alone": right[True, False] / len(rows),
        "trigrams_alone": right[False, True] / len(rows),
    }


if __name__ == "__main__":
    flags.mark_flags_as_required(["text_dir", "model_dir", "output_dir"])
    tool.run(main)
