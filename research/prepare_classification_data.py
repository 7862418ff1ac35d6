r"""Converts a published data set to train.tsv, dev.tsv and test.tsv for bert-tf run_classifier.

    python -m research.prepare_classification_data --dataset=film_reviews --output_dir=reviews
    python -m research.prepare_classification_data --dataset=chinese_reviews --output_dir=chinese
    python -m research.prepare_classification_data --dataset=reviews_csv \
        --input_file=ChnSentiCorp_htl_all.csv --output_dir=hotels

The files have lines of text<TAB>label and contain 80, 10 and 10 % of the data set. Run
research/fetch_materials.py first. The data sets are:

    film_reviews       fresh or rotten; no film is in two splits
    sms_spam           ham or spam
    questions          six kinds of questions
    chinese_reviews    pos or neg; the tool also writes pretraining_text.txt for
                       bert-tf run_pretraining: the training reviews, one sentence per line, with
                       an empty line after each review
    reviews_csv        pos or neg; a file of https://github.com/SophonPlus/ChineseNlpCorpus, of
                       hotels (ChnSentiCorp_htl_all) or of meals (waimai_10k). Its authors name no
                       licence
"""

import collections
import os

from absl import flags

from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_lines

from .corpora import MATERIALS_DIRECTORY, film_reviews, labelled_corpora

FLAGS = flags.FLAGS

# Maps names to the files in --materials_dir and their readers.
DATASETS = {
    "film_reviews": (
        "film_reviews/rotten_tomatoes_corpus_full.csv.bz2",
        film_reviews.read_film_reviews,
    ),
    "sms_spam": ("sms_and_questions/sms-spam.csv", labelled_corpora.read_sms_spam),
    "questions": ("sms_and_questions/question_labels.txt", labelled_corpora.read_questions),
    "chinese_reviews": ("chinese_text", labelled_corpora.read_chinese_reviews),
    "reviews_csv": (None, labelled_corpora.read_reviews_csv),
}
flags.DEFINE_enum("dataset", None, sorted(DATASETS), "The data set.")
flags.DEFINE_string(
    "materials_dir",
    MATERIALS_DIRECTORY,
    "The directory that research/fetch_materials.py wrote the data sets to.",
)
flags.DEFINE_string("input_file", None, "With --dataset=reviews_csv: the file.")
flags.DEFINE_string("output_dir", None, "The directory to write the files to.")
flags.DEFINE_integer("seed", 0, "Seed of the split.")


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    file, read = DATASETS[FLAGS.dataset]
    if (file is None) != (FLAGS.input_file is not None):
        raise UserError(
            "--input_file must be set with --dataset=reviews_csv, and only with it. Received: "
            f"--dataset={FLAGS.dataset}, --input_file={FLAGS.input_file}"
        )
    path = FLAGS.input_file or os.path.join(FLAGS.materials_dir, file)
    is_by_film = FLAGS.dataset == "film_reviews"
    split_texts = film_reviews.split_by_film if is_by_film else labelled_corpora.random_splits
    splits = split_texts(read(path), FLAGS.seed)
    for split, examples in splits.items():
        path = os.path.join(FLAGS.output_dir, f"{split}.tsv")
        write_lines(path, (f"{text}\t{label}" for text, label in examples))
        counts = sorted(collections.Counter(label for _, label in examples).items())
        shown = ", ".join(f"{count} {label}" for label, count in counts)
        print(f"{split}: {len(examples)} examples ({shown})")
    if FLAGS.dataset == "chinese_reviews":
        from bert_tf.inputs.long_texts import split_sentences

        path = os.path.join(FLAGS.output_dir, "pretraining_text.txt")
        reviews = [review for review, _ in splits["train"]]
        write_lines(path, (line for review in reviews for line in [*split_sentences(review), ""]))
        print(f"{path}: {len(reviews)} reviews")


if __name__ == "__main__":
    flags.mark_flags_as_required(["dataset", "output_dir"])
    tool.run(main)
