r"""Learns a vocabulary from text files.

    bert-tf build_vocab --input_file=corpus-*.txt --vocab_size=30522 --output_file=vocab.txt

The files are read line by line, so they may be larger than memory. How the text is divided into
files does not change the result. The flags for the normalization of the text must be those that the
tokenizer will be used with.

With --algorithm=unigram, sentencepiece learns a Unigram model, for which all lines are in memory.
The tokenizer.json that is written contains the normalization:

    bert-tf build_vocab --algorithm=unigram --input_file=corpus-*.txt --vocab_size=30000 \
      --output_file=unigram/tokenizer.json
"""

from bert_tf.tools.common import tool, vocabulary_flags
from bert_tf.tools.common.flag_table import FLAGS
from bert_tf.tools.common.text_files import find_files


def main():
    paths = find_files(FLAGS.input_file)
    tool.require_output_file(FLAGS.output_file, "output_file", paths)
    is_unigram = vocabulary_flags.is_unigram()

    from bert_tf.text.vocabulary_learning import count_words, read_lines

    if is_unigram:
        vocabulary_flags.learn_unigram_and_write(read_lines(paths), "create_pretraining_data")
        return
    counts = count_words(read_lines(paths), *vocabulary_flags.normalization(), progress=False)
    vocabulary_flags.learn_and_write(counts, "create_pretraining_data")


if __name__ == "__main__":
    tool.run(main, "input_file", "output_file")
