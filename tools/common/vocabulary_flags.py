"""The flags of the programs that learn a vocabulary, and what they do with the counted words."""

from bert_tf.tools.common.checks import flag_error, options_of
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    input_file (list): The UTF-8 text files, as paths or glob patterns.
    output_file (str): The vocab.txt to write; with --algorithm=unigram a tokenizer.json.
    vocab_size (int >= 1, 30522): Maximum number of pieces in the vocabulary.
    algorithm (wordpiece|bpe|unigram, wordpiece): The learner. wordpiece: that of tensorflow-text;
        bpe: repeated merges of the most frequent pair; unigram: that of sentencepiece (it needs the
        extra `unigram`), for a tokenizer of ALBERT's form.
    do_lower_case (bool, true): Whether to convert the text to lower case; false for a cased
        vocabulary.
    strip_accents (bool): Whether to remove accents. Default: as --do_lower_case.
    split_on_cjk (bool, true): Whether to split the text at every CJK ideograph.
    segmenter (jieba): Make pieces of frequent Chinese words, which jieba finds (it needs the extra
        `chinese`). Default: Chinese is learned in single ideographs.
    special_tokens (list, [PAD],[UNK],[CLS],[SEP],[MASK]): The first pieces of the vocabulary, in
        this order.
    num_unused (int >= 0, 0): Number of [unusedN] pieces after the special tokens (994 in the
        original).
    min_frequency (int >= 1, 2): Minimum number of occurrences; rarer words, characters and pairs
        are ignored.
    max_characters (int >= 1, 8000): Maximum number of different characters.
    character_coverage (float 0 to 1, 0.9995): With --algorithm=unigram: the share of the characters
        of the text that must be pieces; rarer ones are `<unk>`.
""")
_NOT_OF_UNIGRAM = ("split_on_cjk", "segmenter", "special_tokens", "min_frequency", "max_characters")


def is_unigram():
    """Returns whether --algorithm is `unigram`.

    Raises `UserError` for a flag that it does not have, or if --output_file is of another kind.
    """
    if FLAGS.algorithm != "unigram":
        if FLAGS["character_coverage"].present:
            raise flag_error("character_coverage", "must be left out", "algorithm")
        return False
    for name in _NOT_OF_UNIGRAM:
        if FLAGS[name].present:
            raise flag_error(name, "must be left out with --algorithm=unigram")
    if not FLAGS.output_file.endswith(".json"):
        rule = "must end in .json with --algorithm=unigram, such as tokenizer.json"
        raise flag_error("output_file", rule)
    return True


def normalization():
    """Returns arguments of `count_words`: lowercase, strip_accents, split_on_cjk, segmenter.

    Raises `UserError` if they do not fit each other, or the segmenter is not installed.
    """
    from bert_tf.text.chinese_words import chinese_words
    from bert_tf.text.word_splitter import WordSplitter

    WordSplitter(split_on_cjk=FLAGS.split_on_cjk, words=chinese_words(FLAGS.segmenter))
    return (FLAGS.do_lower_case, FLAGS.strip_accents, FLAGS.split_on_cjk, FLAGS.segmenter)


def learn_and_write(counts, next_program, **next_flags):
    """Learns the vocabulary from counted words, writes --output_file and reports it.

    Args:
        counts: The words with their counts.
        next_program: The program that makes pre-training data of the same files.
        **next_flags: The flags that it needs for them.
    """
    from bert_tf.text.vocabulary import write_vocabulary
    from bert_tf.text.vocabulary_learning import learn_from_counts

    names = ("algorithm", "special_tokens", "num_unused", "min_frequency", "max_characters")
    names += ("segmenter",)
    vocabulary = learn_from_counts(counts, FLAGS.vocab_size, **options_of(*names))
    write_vocabulary(vocabulary, FLAGS.output_file)
    print(f"{len(vocabulary)} pieces from {sum(counts.values())} words, {len(counts)} distinct.")
    _print_next(next_program, **next_flags)


def learn_unigram_and_write(texts, next_program):
    """Learns a Unigram model from texts, writes --output_file and reports it."""
    from bert_tf.base.files import atomic_path
    from bert_tf.base.json_files import write_json
    from bert_tf.text.unigram_learning import learn_unigram

    names = ("strip_accents", "num_unused", "character_coverage")
    options = options_of(*names, lowercase="do_lower_case")
    tokenizer = learn_unigram(texts, FLAGS.vocab_size, progress=False, **options)
    with atomic_path(FLAGS.output_file) as path:
        write_json(path, tokenizer.definition)
    print(f"{tokenizer.vocab_size} pieces.")
    _print_next(next_program)


def _print_next(next_program, **next_flags):
    options = {"vocab_file": FLAGS.output_file, "input_file": ",".join(FLAGS.input_file)}
    if not FLAGS.do_lower_case and FLAGS.algorithm != "unigram":
        options["do_lower_case"] = "false"
    if FLAGS.segmenter:
        options["vocab_segmenter"] = FLAGS.segmenter
    options |= {**next_flags, "output_file": "FILE"}
    print_result("vocabulary", FLAGS.output_file, "Make pre-training data", next_program, **options)
