r"""Converts published parallel texts to train.tsv, dev.tsv and test.tsv: source<TAB>target.

    python -m research.fetch_materials --materials=bible_kjv,bible_bbe
    python -m research.prepare_translation_data --corpus=bible --output_dir=bible

    python -m research.fetch_materials --materials=debian_reference_en,debian_reference_zh_cn
    python -m research.prepare_translation_data --corpus=debian-reference --output_dir=manual

The corpora are:

    bible               verses of the King James Version and of the Bible in Basic English. The
                        test books are Judges, 1 Samuel, Philippians and Hebrews, the dev books
                        1 Kings, Zephaniah, Mark and Colossians, as in Carlson et al. 2018
    debian-reference    paragraphs of the Debian Reference in English and Chinese, aligned by their
                        place in the document; no section is in two splits

The tool prints how many pairs it drops and why.
"""

import collections
import os

from absl import flags

from bert_tf.errors import DataError
from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_lines

from .corpora import MATERIALS_DIRECTORY, bibles, manuals, split_by_group

FLAGS = flags.FLAGS

flags.DEFINE_enum("corpus", None, ["bible", "debian-reference"], "The corpus.")
flags.DEFINE_string(
    "materials_dir",
    MATERIALS_DIRECTORY,
    "The directory that research/fetch_materials.py wrote the corpora to.",
)
flags.DEFINE_string("output_dir", None, "The directory to write the files to.")
flags.DEFINE_integer("seed", 0, "With --corpus=debian-reference: the seed of the split.")


def find(*materials):
    paths = [os.path.join(FLAGS.materials_dir, material) for material in materials]
    for path in paths:
        if not os.path.isdir(path):
            raise DataError(
                f"--materials_dir must have the folders {', '.join(materials)}. Received: no "
                f"{path}. Run `python -m research.fetch_materials "
                f"--materials={','.join(materials)}`."
            )
    return paths


def bible_splits():
    versions = [
        list(bibles.read_verses(os.path.join(path, "html_bible.py")))
        for path in find("bible_kjv", "bible_bbe")
    ]
    pairs, dropped = bibles.align(*versions)
    return bibles.split_by_book(pairs), dropped


def manual_splits():
    english, chinese = find("debian_reference_en", "debian_reference_zh_cn")
    pairs, dropped = [], collections.Counter()
    for name in sorted(os.listdir(english)):
        other = name.replace(".en.", ".zh-cn.")
        sections = [
            manuals.read_sections(os.path.join(directory, file))
            for directory, file in ((english, name), (chinese, other))
        ]
        chapter_pairs, reasons = manuals.align_sections(*sections)
        pairs += chapter_pairs
        dropped.update(reasons)
    unique = manuals.without_repetitions(pairs)
    dropped["with a repeated source text"] = len(pairs) - len(unique)
    anchors = [anchor for anchor, _, _ in unique]
    return split_by_group([pair[1:] for pair in unique], anchors, FLAGS.seed), dropped


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    splits, dropped = bible_splits() if FLAGS.corpus == "bible" else manual_splits()
    for reason, count in dropped.items():
        print(f"dropped: {count} {reason}")
    for split, pairs in splits.items():
        path = os.path.join(FLAGS.output_dir, f"{split}.tsv")
        write_lines(path, (f"{source}\t{target}" for source, target in pairs))
        print(f"{split}: {len(pairs)} pairs")


if __name__ == "__main__":
    flags.mark_flags_as_required(["corpus", "output_dir"])
    tool.run(main)
