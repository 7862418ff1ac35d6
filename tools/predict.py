r"""Answers texts with a trained model of any task.

    bert-tf predict --model_dir=out/model --text="a waste of time"
    bert-tf predict --model_dir=out/model --input_file=reviews.csv --text_column=review \
      --output_file=labels.csv

Prints one line per example: the answer, a tab, and the texts with ||| between them. A text
classifier prints the label and its probability, or all labels with a probability of at least 0.5
where a text may have several, or the numbers of a regression. The answer of every other task is
JSON: what its method (`tag`, `answer`, `choose`, `fill_mask`, `encode`, ...) returns.

If --output_file is a .csv, .tsv, .jsonl or .parquet file, it has all columns of the input and those
of the answers: of a text classifier `predicted_label` and `probability_<label>` for every label.
Files are read and written in blocks, so that memory does not grow with them.
"""

from bert_tf.base.progress import progress_bar
from bert_tf.errors import UserError
from bert_tf.inputs.tables.parquet_files import import_parquet
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import require_one
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.model_flags import kind_of_model
from bert_tf.tools.common.prediction_output import open_output
from bert_tf.tools.common.prediction_rows import about_how_many_rows, blocks_of_rows, source_name

define_flags("""
    text (repeated str): A text. The flag may be repeated. A tab separates the texts of an example.
    input_file (str): A UTF-8 file with one example per line, without a header; tabs separate its
        texts: of a pair, of a question and its context, of a prompt and its choices. An empty line
        is an empty text. A .csv, .tsv, .jsonl or .parquet file is read as a table with named
        columns. - is standard input, as lines.
    text_column (str, text): With a table: the column, or JSON key, of the text.
    pair_column (str): With a table: the column of the second text of a pair. Default: single texts.
    output_file (str): The file to write the predictions to: a .csv, .tsv, .jsonl or .parquet file
        becomes a table, other files have the lines of standard output. Default: standard output.
    batch_size (int >= 1, 32): Batch size for prediction.
""")

BLOCK_OF_ROWS = 4096  # rows in memory at a time


def answers_of(model, rows):
    texts = [row.texts if len(row.texts) > 1 else row.texts[0] for row in rows]
    try:
        return model.predict_decoded(texts, batch_size=FLAGS.batch_size)
    except UserError as error:  # counts the rows of this block
        raise UserError(
            f"{source_name()}, lines {rows[0].line} to {rows[-1].line}: {error}"
        ) from None


def main():
    require_one("text", "input_file")
    if FLAGS.output_file:
        tool.require_output_file(FLAGS.output_file, "output_file")
        if FLAGS.output_file.lower().endswith(".parquet"):
            import_parquet()
    blocks = blocks_of_rows(BLOCK_OF_ROWS)
    rows = next(blocks)  # what is wrong with them is found before the model is loaded
    model = kind_of_model().from_pretrained(FLAGS.model_dir)
    model.require_trained_heads("asked")
    is_shown = bool(FLAGS.output_file)
    total = about_how_many_rows() if is_shown else None
    with (
        open_output(FLAGS.output_file, model) as write,
        progress_bar(total=total, desc="predicting", unit=" examples", disable=not is_shown) as bar,
    ):
        while rows:
            write(rows, answers_of(model, rows))
            bar.update(len(rows))
            rows = next(blocks, [])
    if FLAGS.output_file:
        print_result("answers", FLAGS.output_file)


if __name__ == "__main__":
    tool.run(main, "model_dir")
