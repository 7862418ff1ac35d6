r"""Converts the text of the Debian package sword-text-web for bert-tf create_pretraining_data.

    python -m research.fetch_materials --materials=ordered_text
    python -m research.prepare_ordered_text --input_dir=.cache/materials/ordered_text \
      --output_file=ordered.txt --heldout_file=heldout.txt

The output has one sentence per line and a blank line between chapters, in reading order.
"""

import os

from absl import flags

from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_text

from .corpora.ordered_text import read_ordered_text

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "input_dir",
    None,
    "The directory ordered_text of research/fetch_materials.py, or an unpacked sword-text-web.",
)
flags.DEFINE_string("output_file", None, "The text file to write.")
flags.DEFINE_string(
    "heldout_file",
    None,
    "A second text file to write, with held-out chapters. Default: no chapters are held out.",
)
flags.DEFINE_integer(
    "heldout_every",
    20,
    "With --heldout_file: hold out one chapter of every this many.",
    lower_bound=2,
)


def write(path, chapters):
    text = "\n".join("".join(f"{line}\n" for line in lines) for lines in chapters)
    write_text(path, [text])
    sentences = sum(map(len, chapters))
    print(f"{path}: {len(chapters)} chapters, {sentences} sentences, {os.path.getsize(path)} bytes")


def main():
    for flag in ("output_file", "heldout_file"):
        if FLAGS[flag].value:
            tool.require_output_file(FLAGS[flag].value, flag)
    chapters = list(read_ordered_text(FLAGS.input_dir))
    if FLAGS.heldout_file:
        every = FLAGS.heldout_every
        write(FLAGS.heldout_file, chapters[every - 1 :: every])
        chapters = [chapter for n, chapter in enumerate(chapters, start=1) if n % every]
    write(FLAGS.output_file, chapters)


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_dir", "output_file"])
    tool.run(main)
