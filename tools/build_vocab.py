"""Learns a vocabulary from text files.

    python tools/build_vocab.py --input_file=corpus-*.txt --vocab_size=30522 --output_file=vocab.txt

The files are read line by line, so they may be larger than memory. How the text is divided into
files does not change the result. The flags for the normalization of the text must be those that the
tokenizer will be used with.
"""

from absl import flags
from common.checks import options_of
from common.console import tell_result
from common.text_files import find_files

from bert_tf import tool

FLAGS = flags.FLAGS

flags.DEFINE_list("input_file", None, "The UTF-8 text files, as paths or glob patterns.")
flags.DEFINE_string("output_file", None, "The vocab.txt to write.")
flags.DEFINE_integer(
    "vocab_size", 30522, "Maximum number of pieces in the vocabulary.", lower_bound=1
)
flags.DEFINE_enum(
    "algorithm",
    "wordpiece",
    ["wordpiece", "bpe"],
    "The learner. wordpiece: that of tensorflow-text; bpe: repeated merges of the most frequent "
    "pair.",
)
flags.DEFINE_bool(
    "do_lower_case",
    True,
    "Whether to convert the text to lower case; false for a cased vocabulary.",
)
flags.DEFINE_bool("strip_accents", None, "Whether to remove accents. Default: as --do_lower_case.")
flags.DEFINE_bool("split_on_cjk", True, "Whether to split the text at every CJK ideograph.")
flags.DEFINE_list(
    "special_tokens",
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "The first pieces of the vocabulary, in this order.",
)
flags.DEFINE_integer(
    "num_unused",
    0,
    "Number of [unusedN] pieces after the special tokens (994 in the original).",
    lower_bound=0,
)
flags.DEFINE_integer(
    "min_frequency",
    2,
    "Minimum number of occurrences; rarer words, characters and pairs are ignored.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "max_characters", 8000, "Maximum number of different characters.", lower_bound=1
)


def main():
    paths = find_files(FLAGS.input_file)

    from bert_tf.text.vocabulary import write_vocabulary
    from bert_tf.text.vocabulary_learning import count_words, learn_from_counts, read_lines

    normalization = (FLAGS.do_lower_case, FLAGS.strip_accents, FLAGS.split_on_cjk)
    counts = count_words(read_lines(paths), *normalization, progress=False)
    names = ("algorithm", "special_tokens", "num_unused", "min_frequency", "max_characters")
    vocabulary = learn_from_counts(counts, FLAGS.vocab_size, **options_of(*names))
    write_vocabulary(vocabulary, FLAGS.output_file)
    print(f"{len(vocabulary)} pieces from {sum(counts.values())} words, {len(counts)} distinct.")
    purpose, program = "Make pre-training data", "create_pretraining_data"
    options = {"vocab_file": FLAGS.output_file, "input_file": ",".join(FLAGS.input_file)}
    tell_result("vocabulary", FLAGS.output_file, purpose, program, **options, output_file="FILE")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_file"])
    tool.run(main)
