r"""Scores jieba's words on Chinese text whose words are known.

    pip install 'bert-tf[chinese,tagging]'
    python -m research.baseline_segmentation --data_dir=news_words --output_dir=news_words_jieba

Reads test.txt in --data_dir, which research/prepare_chinese_news.py --task=segmentation writes, and
writes test_results.txt to --output_dir: precision, recall and F1 of words, and the accuracy of
characters. A word is right if it begins and ends where a known word does.
"""

import os

from absl import flags

from bert_tf.tasks.token_classification.files import read_conll
from bert_tf.tasks.token_classification.tag_schemes import spans_of_tags
from bert_tf.tools.common import result_files, tool

FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "The directory with test.txt.")
flags.DEFINE_string("output_dir", None, "The directory to write the results to.")


def words_of(sentence):
    """Returns the words of a tagged sentence as strings."""
    return ["".join(sentence.words[a:b]) for a, b, _ in spans_of_tags(sentence.tags)]


def character_tags(words):
    """Returns the tags of the characters of words in IOB2."""
    return ["I-W" if place else "B-W" for word in words for place in range(len(word))]


def main():
    from bert_tf.tasks.token_classification import tagging_scores
    from bert_tf.text import jieba_segmenter

    segmenter = jieba_segmenter()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    known = [words_of(row) for row in read_conll(os.path.join(FLAGS.data_dir, "test.txt"))]
    found = [segmenter("".join(words)) for words in known]
    scores = tagging_scores(*([character_tags(words) for words in rows] for rows in (known, found)))
    lines = [f"test_{key} = {value:.6f}" for key, value in scores.items()]
    result_files.report(lines, "test_results.txt", "Test")


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "output_dir"])
    tool.run(main)
