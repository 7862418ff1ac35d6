r"""Scores baselines of translation and summarization that need no network.

    pip install sacrebleu rouge-score
    python -m research.prepare_translation_data --corpus=bible --output_dir=bible
    python -m research.baseline_generation --data_dir=bible --output_dir=bible_baselines

Reads train.tsv, dev.tsv and test.tsv with lines of source<TAB>target. The baselines are:

    copy     the source
    lead1    the first sentence of the source
    words    each word of the source replaced by its most probable translation, learned from
             train.tsv by IBM model 1; unknown words are kept

The tool writes to --output_dir:

    dev_results.txt, test_results.txt    BLEU, chrF and ROUGE (0 to 100) of each baseline
    dev_copy.txt, ...                    the texts of each baseline, one per line
"""

import os

from absl import flags

from bert_tf.tools.common import result_files, text_score_flags, tool
from bert_tf.tools.common.text_files import read_texts

from .word_translation import learn_table, translate

FLAGS = flags.FLAGS

BASELINES = ("copy", "lead1", "words")
flags.DEFINE_string("data_dir", None, "The directory with train.tsv, dev.tsv and test.tsv.")
flags.DEFINE_string("output_dir", None, "The directory to write the results to.")
flags.DEFINE_multi_enum("baseline", list(BASELINES), BASELINES, "A baseline; can be repeated.")
text_score_flags.define_tokenize()
flags.DEFINE_integer(
    "iterations", 5, "Number of iterations of expectation maximization for words.", lower_bound=1
)
flags.DEFINE_integer(
    "bootstrap_samples",
    0,
    "If positive, also print 95 % intervals by this many draws of the texts.",
    lower_bound=0,
)


def read(split):
    return read_texts(os.path.join(FLAGS.data_dir, f"{split}.tsv"), width=2)


def outputs_of(baseline, sources, table):
    from bert_tf.inputs.long_texts import split_sentences

    if baseline == "lead1":
        return [next(iter(split_sentences(source)), source) for source in sources]
    if baseline == "words":
        return [translate(source, table) for source in sources]
    return sources


def main():
    from bert_tf.training.evaluation import generated_text
    from bert_tf.training.evaluation.scores import drawn_intervals

    generated_text.require_text_metrics()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    held_out = {split: read(split) for split in ("dev", "test")}
    table = {}
    if "words" in FLAGS.baseline:
        table = learn_table(*read("train"), FLAGS.iterations)
        print(f"words: a table of {len(table)} words")
    for split, (sources, targets) in held_out.items():
        lines = []
        for baseline in FLAGS.baseline:
            texts = outputs_of(baseline, sources, table)
            path = os.path.join(FLAGS.output_dir, f"{split}_{baseline}.txt")
            result_files.write_lines(path, texts)
            compared = texts, targets, FLAGS.tokenize
            scores = generated_text.generated_text_scores(*compared)
            lines += result_files.score_lines(scores, f"{baseline}_")
            if FLAGS.bootstrap_samples:
                rows = generated_text.generated_text_rows(*compared)
                intervals = drawn_intervals(rows, len(texts), FLAGS.bootstrap_samples)
                lines += [
                    f"{baseline}_{name}_interval = {low:.6f} {high:.6f}"
                    for name, (low, high) in sorted(intervals.items())
                ]
        result_files.report(lines, f"{split}_results.txt", f"{split.capitalize()}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "output_dir"])
    tool.run(main)
