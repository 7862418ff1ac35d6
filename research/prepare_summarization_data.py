r"""Converts the descriptions of Debian packages to a corpus for summarization.

    python -m research.fetch_materials --materials=package_descriptions
    python -m research.prepare_summarization_data --output_dir=descriptions

The document is the long description of a package, the summary its one-line synopsis. The tool
writes to --output_dir, for each of the splits train, dev and test:

    train.tsv      document<TAB>summary
    train.jsonl    the same as JSON objects: package, source_package, document, summary

Packages that are built from the same source (such as -dev and -doc) or from versions of the same
source (such as gcc-11 and gcc-12) are in one split, and repeated descriptions are dropped. The
files depend on the day of the download, because the lists of packages change.
"""

import json
import os

from absl import flags

from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_lines

from .corpora import MATERIALS_DIRECTORY, split_by_group
from .corpora.package_descriptions import family, read_descriptions, usable

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "input_dir",
    os.path.join(MATERIALS_DIRECTORY, "package_descriptions"),
    "The directory package_descriptions of research/fetch_materials.py.",
)
flags.DEFINE_string("output_dir", None, "The directory to write the files to.")
flags.DEFINE_integer("seed", 0, "Seed of the split.")


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    descriptions, dropped = usable(read_descriptions(FLAGS.input_dir))
    for reason, count in dropped.items():
        print(f"dropped: {count} packages {reason}")
    families = [family(description.source_package) for description in descriptions]
    for split, rows in split_by_group(descriptions, families, FLAGS.seed).items():
        stem = os.path.join(FLAGS.output_dir, split)
        write_lines(f"{stem}.tsv", (f"{row.document}\t{row.summary}" for row in rows))
        lines = (json.dumps(row._asdict(), ensure_ascii=False) for row in rows)
        write_lines(f"{stem}.jsonl", lines)
        print(f"{split}: {len(rows)} packages")


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_dir"])
    tool.run(main)
