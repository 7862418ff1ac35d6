r"""Measures how well the encoders of compare_encoders.py tell senses of words ("bank") apart.

    python -m research.compare_encoders --table=encoders --work_dir=comparison
    python -m research.compare_word_senses --work_dir=comparison

A word has one vector per sentence: the hidden states of its pieces. Static vectors are the same
in all sentences. The score is the area under the ROC curve of the cosines: pairs of sentences with
one sense against pairs with two, the mean over nine words; 0.5 is chance. "Within" counts pairs of
the same corpus only. --init_checkpoint adds a row for any other encoder.

The tool writes to --work_dir: word_senses.md and word_senses.png.
"""

import os

from absl import flags

from bert_tf.base.pictures import require_picture
from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_lines

from .comparison.data_sets import ENGLISH
from .comparison.encoders import ENCODERS
from .comparison.word_senses import read_sentences, separation_by_layer
from .table_pictures import draw_table, parse_table

FLAGS = flags.FLAGS

flags.DEFINE_string("work_dir", None, "The directory of research/compare_encoders.py.")
flags.DEFINE_string("init_checkpoint", None, "Another encoder to add, with its tokenizer.")


def checkpoints():
    """Returns the directories of the encoders by their titles."""
    found = {one.title: one.checkpoint(ENGLISH, FLAGS.work_dir) for one in ENCODERS}
    missing = [path for path in found.values() if not os.path.isdir(path)]
    if missing:
        raise UserError(
            "--work_dir must have the encoders of research/compare_encoders.py. "
            f"Received: no {missing[0]}"
        )
    if FLAGS.init_checkpoint is not None:
        name = os.path.basename(os.path.abspath(FLAGS.init_checkpoint))
        found[name] = FLAGS.init_checkpoint
    return found


def main():
    picture = os.path.join(FLAGS.work_dir, "word_senses.png")
    require_picture(picture, "--work_dir")
    paths = checkpoints()
    sentences = read_sentences(FLAGS.work_dir)
    import research.baselines  # noqa: F401  registers the class of some encoders
    from bert_tf import BertFeatureExtractor

    lines = ["| encoder | layer | all pairs | within a corpus |", "|---|---|---:|---:|"]
    for title, path in paths.items():
        model = BertFeatureExtractor.from_pretrained(path, layer_indices=(-1,))
        for layer, (every, within) in separation_by_layer(model, sentences).items():
            lines.append(f"| {title} | {layer} | {every:.3f} | {within:.3f} |")
    write_lines(os.path.join(FLAGS.work_dir, "word_senses.md"), lines)
    draw_table(parse_table(lines), picture)
    print(*lines, sep="\n")


if __name__ == "__main__":
    flags.mark_flag_as_required("work_dir")
    tool.run(main)
