"""Answers texts with a trained model of any task.

    python tools/predict.py --model_dir=out/model --text="a waste of time"
    python tools/predict.py --model_dir=out/model --input_file=reviews.txt --output_file=labels.tsv
    python tools/predict.py --model_dir=out/model --input_file=reviews.csv --text_column=review

Prints one line per example: the answer and the texts, separated by tabs. A text classifier prints
the label and its probability, or all labels with a probability of at least 0.5 where a text may
have several, or the numbers of a regression. The answer of every other task is JSON: what its
method (`tag`, `answer`, `choose`, `fill_mask`, `encode`, ...) returns.
"""

import json
import sys

import numpy as np
from absl import flags
from common.checks import require_one
from common.console import tell_result
from common.model_flags import kind_of_model
from common.result_files import write_text

from bert_tf import tool
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.data.table_files import read_table
from bert_tf.data.tsv import read_tsv
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

flags.DEFINE_multi_string(
    "text", None, "A text. The flag may be repeated. A tab separates the texts of an example."
)
flags.DEFINE_string(
    "input_file",
    None,
    "A UTF-8 file with one example per line, without a header; tabs separate its texts: of a pair, "
    "of a question and its context, of a prompt and its choices. A .csv or .jsonl file, or a .tsv "
    "file with --text_column, is read as a table with named columns.",
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


def read_input() -> list[tuple[str, ...]]:
    require_one("text", "input_file")
    by_name = FLAGS["text_column"].present or FLAGS["pair_column"].present
    if FLAGS.text:
        source, rows = "--text", enumerate((text.split("\t") for text in FLAGS.text), start=1)
    elif by_name or FLAGS.input_file.lower().endswith((".csv", ".jsonl")):
        source, rows = FLAGS.input_file, named_columns()
    else:
        source, rows = FLAGS.input_file, read_tsv(FLAGS.input_file)
    examples = []
    for line, fields in rows:
        examples.append(tuple(fields))
        if len(fields) != len(examples[0]):
            raise UserError(
                f"{source}, line {line} must be {len(examples[0])} tab-separated texts, as the "
                f"first. Received: {len(fields)}"
            )
    if not examples:
        raise UserError(f"{source} must be a file with texts. Received: no text")
    return examples


def named_columns():
    names = [FLAGS.text_column] + ([FLAGS.pair_column] if FLAGS.pair_column else [])
    for line, row in read_table(FLAGS.input_file):
        for name in names:
            if not isinstance(row.get(name), str):
                raise UserError(
                    f"{FLAGS.input_file}, line {line} must have a text in the column {name!r}. "
                    f"Received: {row.get(name)!r}. The columns are {', '.join(row)}; set "
                    "--text_column and --pair_column."
                )
        yield line, [row[name] for name in names]


def shown(model, answer) -> str:
    if not hasattr(model, "classify"):
        return json.dumps(as_json(answer), ensure_ascii=False)
    if model.problem_type == REGRESSION:
        return " ".join(f"{value:.4f}" for value in answer.scores.values())
    if model.problem_type == MULTI_LABEL:
        return " ".join(f"{label}:{answer.scores[label]:.4f}" for label in answer.labels)
    return f"{answer.label}\t{answer.scores[answer.label]:.4f}"


def as_json(value):
    """Returns named tuples as dictionaries, arrays as lists and NumPy's numbers as Python's."""
    if hasattr(value, "_asdict"):
        return {name: as_json(part) for name, part in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def main():
    examples = read_input()
    model = kind_of_model().from_pretrained(FLAGS.model_dir)
    model.require_trained_heads("asked")
    texts = examples if len(examples[0]) > 1 else [text for (text,) in examples]
    answers = model.predict_decoded(texts, batch_size=FLAGS.batch_size)
    lines = [
        f"{shown(model, answer)}\t{' ||| '.join(texts)}\n"
        for answer, texts in zip(answers, examples)
    ]
    if FLAGS.output_file:
        write_text(FLAGS.output_file, lines)
        tell_result("answers", FLAGS.output_file)
    else:
        sys.stdout.writelines(lines)


if __name__ == "__main__":
    flags.mark_flag_as_required("model_dir")
    tool.run(main)
