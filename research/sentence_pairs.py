r"""Times the search for the most similar pairs of 10,000 sentences, in two ways.

    python -m research.sentence_pairs --input_file=sentences.txt --init_checkpoint=minilm

A sentence encoder computes one vector for each sentence, and `search.paraphrase_mining` compares
them all. A cross-encoder of the same size, whose head has random weights, reads pairs: there are 50
million, so it reads --share of them, and the time is extrapolated. The ways take turns. The table
has medians and ranges of processor seconds (of all cores), once in float32 and once in int8.

Source: the comparison of Reimers and Gurevych 2019 (arXiv 1908.10084), section 1.
"""

import time

import numpy as np
from absl import flags

import bert_tf
from bert_tf.tools.common import tool
from bert_tf.tools.common.text_files import read_single_texts

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "A text with one sentence per line.")
flags.DEFINE_string("init_checkpoint", None, "The directory of a sentence encoder.")
flags.DEFINE_integer("num_sentences", 10_000, "The sentences that are read, from the first.")
flags.DEFINE_float("share", 0.01, "The share of the pairs that the cross-encoder reads.")
flags.DEFINE_integer("rounds", 3, "How often each way is timed.")


def processor_seconds(function) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def ways(precision, sentences, pairs):
    """Returns the function to time for each way, its models ready and traced."""
    encoder = bert_tf.BertSentenceEncoder.from_pretrained(FLAGS.init_checkpoint)
    judge = bert_tf.BertTextClassifier.from_pretrained(
        FLAGS.init_checkpoint, num_classes=1, problem_type="regression"
    )
    if precision == "int8":
        encoder.quantize("int8")
        judge.quantize("int8")
    first, second = ([sentences[row] for row in rows] for rows in pairs.T)

    def by_vectors():
        return bert_tf.search.paraphrase_mining(encoder.encode(sentences), max_pairs=10_000)

    def by_pairs():
        return judge.predict((first, second), batch_size=64, verbose=0)

    encoder.encode(sentences[:100])
    judge.predict((first[:100], second[:100]), batch_size=64, verbose=0)
    return {"vectors": by_vectors, "pairs": by_pairs}


def main():
    sentences = read_single_texts(FLAGS.input_file)[: FLAGS.num_sentences]
    count = len(sentences)
    all_pairs = count * (count - 1) // 2
    generator = np.random.default_rng(0)
    drawn = generator.integers(0, count, [round(all_pairs * FLAGS.share), 2])
    functions = {
        (precision, way): function
        for precision in ("float32", "int8")
        for way, function in ways(precision, sentences, drawn).items()
    }
    times = {key: [] for key in functions}
    for _ in range(FLAGS.rounds):
        for key, function in functions.items():
            times[key].append(processor_seconds(function))
    print(f"{count:,} sentences, {all_pairs:,} pairs, of which {len(drawn):,} were read")
    print("precision\tway\tprocessor seconds\tleast\tmost")
    for (precision, way), found in times.items():
        factor = all_pairs / len(drawn) if way == "pairs" else 1
        numbers = (f"{factor * t:.4g}" for t in (np.median(found), min(found), max(found)))
        print(precision, way, *numbers, sep="\t")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "init_checkpoint"])
    tool.run(main)
