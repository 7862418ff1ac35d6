"""Converts a published data set to train.tsv, dev.tsv and test.tsv for tools/run_classifier.py.

    python tools/prepare_classification_data.py --dataset=film_reviews --output_dir=reviews
    python tools/prepare_classification_data.py --dataset=chinese_reviews --output_dir=chinese

The files have lines of text<TAB>label and contain 80, 10 and 10 % of the data set. Run
tools/fetch_materials.py first. The data sets are:

    film_reviews       fresh or rotten; no film is in two splits
    sms_spam           ham or spam
    questions          six kinds of questions
    chinese_reviews    pos or neg; the tool also writes pretraining_text.txt for
                       tools/run_pretraining.py: the training reviews, one sentence per line, with
                       an empty line after each review
"""

import os

from absl import flags
from corpora import film_reviews, labelled_corpora

from bert_tf import tool
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

_REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _film_reviews(materials, seed):
    path = os.path.join(materials, "film_reviews", "rotten_tomatoes_corpus_full.csv.bz2")
    return film_reviews.split_by_film(film_reviews.read_film_reviews(path), seed)


def _sms_spam(materials, seed):
    path = os.path.join(materials, "sms_and_questions", "sms-spam.csv")
    return labelled_corpora.random_splits(labelled_corpora.read_sms_spam(path), seed)


def _questions(materials, seed):
    path = os.path.join(materials, "sms_and_questions", "question_labels.txt")
    return labelled_corpora.random_splits(labelled_corpora.read_questions(path), seed)


def _chinese_reviews(materials, seed):
    path = os.path.join(materials, "chinese_text")
    return labelled_corpora.random_splits(labelled_corpora.read_chinese_reviews(path), seed)


DATASETS = {
    "film_reviews": _film_reviews,
    "sms_spam": _sms_spam,
    "questions": _questions,
    "chinese_reviews": _chinese_reviews,
}
flags.DEFINE_enum("dataset", None, sorted(DATASETS), "The data set.")
flags.DEFINE_string(
    "materials_dir",
    os.environ.get("BERT_TF_MATERIALS", os.path.join(_REPOSITORY, ".cache", "materials")),
    "The directory that tools/fetch_materials.py wrote the data sets to.",
)
flags.DEFINE_string("output_dir", None, "The directory to write the files to.")
flags.DEFINE_integer("seed", 0, "Seed of the split.")


def write_pretraining_text(train_reviews, path):
    """Writes the text of the training reviews, for pre-training."""
    from bert_tf.data.long_texts import split_sentences

    with atomic_path(path) as new, open(new, "w", encoding="utf-8") as file:
        for review, _ in train_reviews:
            file.writelines(f"{sentence}\n" for sentence in split_sentences(review))
            file.write("\n")
    print(f"{path}: {len(train_reviews)} reviews")


def main():
    tool.require_writable(FLAGS.output_dir, "output_dir")
    splits = DATASETS[FLAGS.dataset](FLAGS.materials_dir, FLAGS.seed)
    for split, examples in splits.items():
        with atomic_path(os.path.join(FLAGS.output_dir, f"{split}.tsv")) as path:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{text}\t{label}\n" for text, label in examples)
        counts = dict.fromkeys(sorted({label for _, label in examples}), 0)
        for _, label in examples:
            counts[label] += 1
        shown = ", ".join(f"{count} {label}" for label, count in counts.items())
        print(f"{split}: {len(examples)} examples ({shown})")
    if FLAGS.dataset == "chinese_reviews":
        path = os.path.join(FLAGS.output_dir, "pretraining_text.txt")
        write_pretraining_text(splits["train"], path)


if __name__ == "__main__":
    flags.mark_flags_as_required(["dataset", "output_dir"])
    tool.run(main)
