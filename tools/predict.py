"""Classifies texts with a trained text classifier.

    python tools/predict.py --model_dir=out/model --text="a waste of time"
    python tools/predict.py --model_dir=out/model --input_file=reviews.txt --output_file=labels.tsv
    python tools/predict.py --model_dir=out/model --input_file=reviews.csv --text_column=review

Prints one line per text: the label, its probability and the text, separated by tabs. For a model
with several labels per text it prints all labels with a probability of at least 0.5; for a
regression it prints the number.
"""

import sys

from absl import flags

from bert_tf import tool
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.data.table_files import read_table
from bert_tf.data.tsv import read_tsv
from bert_tf.errors import UserError
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

THRESHOLD = 0.5  # the least probability of a label, for several labels per text

flags.DEFINE_string(
    "model_dir", None, "The directory of the trained model, as save_pretrained writes it."
)
flags.DEFINE_multi_string("text", None, "A text to classify. The flag may be repeated.")
flags.DEFINE_string(
    "input_file",
    None,
    "A UTF-8 file with one text per line, without a header; a tab separates the two texts of a "
    "pair. A .csv or .jsonl file, or a .tsv file with --text_column, is read as a table with named "
    "columns.",
)
flags.DEFINE_string("text_column", "text", "With a table: the column, or JSON key, of the text.")
flags.DEFINE_string(
    "pair_column",
    None,
    "With a table: the column of the second text of a pair. Default: single texts.",
)
flags.DEFINE_string(
    "output_file", None, "The file to write the predictions to. Default: standard output."
)
flags.DEFINE_integer("batch_size", 32, "Batch size for prediction.", lower_bound=1)


def read_input():
    """Returns a list of texts, or two lists for pairs, from the flags."""
    if bool(FLAGS.text) == bool(FLAGS.input_file):
        raise UserError(
            "Exactly one of --text and --input_file must be set. Received: "
            f"{'both' if FLAGS.text else 'neither'}"
        )
    if FLAGS.text:
        return FLAGS.text
    by_name = FLAGS["text_column"].present or FLAGS["pair_column"].present
    if by_name or FLAGS.input_file.lower().endswith((".csv", ".jsonl")):
        return read_columns()
    rows = list(read_tsv(FLAGS.input_file))
    if not rows:
        raise UserError(f"{FLAGS.input_file} must be a file with texts. Received: no text")
    width = len(rows[0][1])
    for line, fields in rows:
        if len(fields) != width or width > 2:
            raise UserError(
                f"{FLAGS.input_file}, line {line} must be {min(width, 2)} tab-separated texts. "
                f"Received: {len(fields)}"
            )
    columns = tuple([fields[i] for _, fields in rows] for i in range(width))
    return columns if width == 2 else columns[0]


def read_columns():
    """Returns a list of texts, or two lists for pairs, from the columns of a table."""
    names = [FLAGS.text_column] + ([FLAGS.pair_column] if FLAGS.pair_column else [])
    columns = [[] for _ in names]
    for line, row in read_table(FLAGS.input_file):
        for name, column in zip(names, columns):
            if not isinstance(row.get(name), str):
                raise UserError(
                    f"{FLAGS.input_file}, line {line} must have a text in the column {name!r}. "
                    f"Received: {row.get(name)!r}. The columns are {', '.join(row)}; set "
                    "--text_column and --pair_column."
                )
            column.append(row[name])
    if not columns[0]:
        raise UserError(f"{FLAGS.input_file} must be a file with texts. Received: no text")
    return tuple(columns) if FLAGS.pair_column else columns[0]


def answer(model, row):
    """Formats the prediction for one text: label and probability, several of them, or numbers."""
    if model.problem_type == REGRESSION:
        return " ".join(f"{value:.4f}" for value in row)
    labels = model.labels or [f"LABEL_{index}" for index in range(model.num_classes)]
    if model.problem_type == MULTI_LABEL:
        return " ".join(f"{label}:{p:.4f}" for label, p in zip(labels, row) if p >= THRESHOLD)
    return f"{labels[row.argmax()]}\t{row.max():.4f}"


def main():
    from bert_tf.tasks.text_classification.model import BertTextClassifier

    texts = read_input()
    model = BertTextClassifier.from_pretrained(FLAGS.model_dir)
    model.require_trained_heads("asked")
    logits = model.predict(texts, batch_size=FLAGS.batch_size, verbose=0)
    shown = [" ||| ".join(pair) for pair in zip(*texts)] if isinstance(texts, tuple) else texts
    probabilities = model.probabilities(logits)
    lines = [f"{answer(model, row)}\t{text}\n" for row, text in zip(probabilities, shown)]
    if FLAGS.output_file:
        with atomic_path(FLAGS.output_file) as path:
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(lines)
    else:
        sys.stdout.writelines(lines)


if __name__ == "__main__":
    flags.mark_flag_as_required("model_dir")
    tool.run(main)
