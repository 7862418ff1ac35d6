r"""Makes a data set for retrieval of published texts, in the files of BEIR.

    python -m research.fetch_materials --materials=debian_reference_en,debian_handbook_en
    python -m research.prepare_retrieval_data --data_set=manuals --output_dir=data/manuals
    bert-tf evaluate_retrieval --model_dir=minilm --data_dir=data/manuals --output_dir=out

--data_set is manuals (headings find the paragraphs of their sections), questions (a question finds
others that ask for the same kind of thing) or film_reviews (a review finds others of the same
film). The tool writes to --output_dir:

    corpus.jsonl, queries.jsonl, qrels/dev.tsv, qrels/test.tsv    for bert-tf evaluate_retrieval
    train.jsonl                                                   for bert-tf run_sentence_encoder:
                                                                  {"anchor": ..., "positive": ...}
"""

import json
import os

from absl import flags

from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_lines

from .corpora import MATERIALS_DIRECTORY, retrieval

FLAGS = flags.FLAGS

flags.DEFINE_enum("data_set", "manuals", list(retrieval.DATA_SETS), "The data set.")
flags.DEFINE_string(
    "materials_dir", MATERIALS_DIRECTORY, "The directory of research/fetch_materials.py."
)
flags.DEFINE_string("output_dir", None, "The directory to write the files to.")
flags.DEFINE_integer("seed", 0, "Seed of the split and of the training pairs.")


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    from bert_tf.tasks.sentence_embedding.files import QRELS_COLUMNS

    data = retrieval.DATA_SETS[FLAGS.data_set](FLAGS.materials_dir, FLAGS.seed)
    for name, texts in (("corpus", data.documents), ("queries", data.queries)):
        rows = ({"_id": id_, "text": text} for id_, text in texts.items())
        write_json_lines(f"{name}.jsonl", rows)
    pairs = ({"anchor": anchor, "positive": positive} for anchor, positive in data.pairs)
    write_json_lines("train.jsonl", pairs)
    os.makedirs(os.path.join(FLAGS.output_dir, "qrels"), exist_ok=True)
    for split in ("dev", "test"):
        lines = ["\t".join(QRELS_COLUMNS)]
        lines += [f"{q}\t{d}\t1" for q, ids in data.relevant[split].items() for d in ids]
        write_lines(os.path.join(FLAGS.output_dir, "qrels", f"{split}.tsv"), lines)
        print(f"{split}: {len(data.relevant[split])} queries, {len(lines) - 1} documents that fit")
    print(f"{len(data.documents)} documents; train: {len(data.pairs)} pairs")


def write_json_lines(name, rows):
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    write_lines(os.path.join(FLAGS.output_dir, name), lines)


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_dir"])
    tool.run(main)
