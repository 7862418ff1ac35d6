r"""Scores the parts of characters that bert-tf run_translation wrote.

    bert-tf run_translation --data_dir=parts --do_predict --output_dir=out
    python -m research.score_character_parts --predictions_file=out/test_predictions.jsonl \
        --output_dir=out

Prints and writes to test_parts.txt in --output_dir the scores of
`corpora.character_parts.score_parts`. research/prepare_character_parts.py makes the data.
"""

import json

from absl import flags

from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tools.common import result_files, tool

from .corpora.character_parts import score_parts

FLAGS = flags.FLAGS

flags.DEFINE_string("predictions_file", None, "The file that run_translation wrote.")
flags.DEFINE_string("output_dir", None, "The directory to write the scores to.")


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    rows = [json.loads(line) for _, line in read_lines(FLAGS.predictions_file)]
    scores = score_parts(*([row[name] for row in rows] for name in ("prediction", "target")))
    result_files.report(result_files.score_lines(scores, "test_"), "test_parts.txt", "Test")


if __name__ == "__main__":
    flags.mark_flags_as_required(["predictions_file", "output_dir"])
    tool.run(main)
