r"""Encodes a corpus of texts and writes an index that bert-tf search searches.

    bert-tf build_index --model_dir=minilm --input_file=reviews.csv --text_column=review \
      --id_column=id --precision=int8 --output_dir=out/index

--input_file is a text file with one text per line, or a .csv, .tsv, .jsonl or .parquet table. It is
read, encoded and written block by block, so neither the corpus nor its vectors need to fit in
memory. Lines without text are left out.

The directory holds the vectors, which are opened by memory map, and the texts with their ids. It is
written atomically. `bert_tf.search.VectorIndex` opens it in Python.
"""

import contextlib
import itertools
import os

from bert_tf.base.file_errors import data_error
from bert_tf.base.progress import progress_bar
from bert_tf.errors import DataError, user_error
from bert_tf.inputs.tables.table_files import SUFFIXES, read_table
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.prediction_rows import about_how_many_rows

define_flags("""
    model_dir (str): The sentence encoder: a directory of sentence-transformers, Hugging Face or
        TF1.
    input_file (str): The corpus in UTF-8: one text per line, or a .csv, .tsv, .jsonl or .parquet
        table.
    text_column (str, text): With a table: the column, or JSON key, of the text.
    id_column (str): With a table: the column of the ids, strings or numbers. Default: no ids.
    output_dir (str): The directory of the index; an older index is replaced.
    precision (float32|float16|int8|binary, float32): How vectors are stored: in 4, 2 or 1 bytes per
        dimension, or in one bit.
    similarity (cosine|dot, cosine): What is compared: the cosines of vectors, or their dot
        products.
    prompt (str): What is put before each text, such as 'passage: '. Default: the model's default
        prompt, if it has one.
    batch_size (int >= 1, 32): Batch size for encoding.
    num_processes (int >= 1, 1): How many processes encode, for processors with many cores. Each has
        its share of them.
    devices (list): The GPUs of the processes, as CUDA_VISIBLE_DEVICES names them: 0,1,2,3. Default:
        none.
""")

BLOCK_OF_ROWS = 4096  # rows in memory at a time


def rows_of_input():
    """Yields the id, or None, and the text of each row."""
    path = FLAGS.input_file
    if not path.lower().endswith(SUFFIXES):
        if FLAGS["text_column"].present or FLAGS.id_column:
            expected = f"be a {', '.join(SUFFIXES)} file with --text_column and --id_column"
            raise user_error("--input_file", expected, f"{path}, which is read as lines of texts")
        yield from ((None, text) for _, text in read_lines(path) if text.strip())
        return
    columns = [FLAGS.text_column, *([FLAGS.id_column] if FLAGS.id_column else [])]
    for line, row in read_table(path, columns=columns):
        text, name = row.get(FLAGS.text_column), FLAGS.text_column
        if not isinstance(text, str):
            received = f"{text!r}. The columns are {', '.join(row)}; set --text_column."
            raise data_error(path, f"have a text in the column {name!r}", received, line)
        row_id = row.get(FLAGS.id_column) if FLAGS.id_column else None
        if FLAGS.id_column and not isinstance(row_id, (str, int, float)):
            expected = f"have a string or a number in the column {FLAGS.id_column!r}"
            received = f"{row_id!r}. The columns are {', '.join(row)}; set --id_column."
            raise data_error(path, expected, received, line)
        if text.strip():
            yield row_id, text


def main():
    from bert_tf.search.index_files import require_index_or_nothing

    if FLAGS.devices is not None and len(FLAGS.devices) != FLAGS.num_processes:
        raise flag_error(
            "devices", "must have one GPU for each of --num_processes", "num_processes"
        )
    require_index_or_nothing(FLAGS.output_dir)
    tool.require_writable(os.path.dirname(os.path.abspath(FLAGS.output_dir)), "output_dir")
    rows = rows_of_input()
    block = list(itertools.islice(rows, BLOCK_OF_ROWS))  # errors come before the model is loaded
    if not block:
        raise DataError(f"{FLAGS.input_file} must be a file with texts. Received: no text")
    from bert_tf.search.index_files import open_index_writer
    from bert_tf.tasks.sentence_embedding import EncodingPool
    from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder

    is_pool = FLAGS.num_processes > 1 or FLAGS.devices is not None
    if is_pool:
        encoder = EncodingPool(FLAGS.model_dir, FLAGS.num_processes, FLAGS.devices)
    else:
        encoder = BertSentenceEncoder.from_pretrained(FLAGS.model_dir)
    options = {"precision": FLAGS.precision, "similarity": FLAGS.similarity}
    count = 0
    block_of_rows = BLOCK_OF_ROWS * FLAGS.num_processes
    with (
        encoder if is_pool else contextlib.nullcontext(),
        open_index_writer(FLAGS.output_dir, model=FLAGS.model_dir, **options) as writer,
        progress_bar(total=about_how_many_rows(), desc="encoding", unit=" texts") as bar,
    ):
        while block:
            ids, texts = zip(*block)
            vectors = encoder.encode(list(texts), batch_size=FLAGS.batch_size, prompt=FLAGS.prompt)
            writer.add(vectors, texts, ids if FLAGS.id_column else None)
            count += len(block)
            bar.update(len(block))
            block = list(itertools.islice(rows, block_of_rows))
    print(f"{count} vectors of size {vectors.shape[1]}")
    print_result(
        "index",
        FLAGS.output_dir,
        "Search",
        "search",
        index_dir=FLAGS.output_dir,
        model_dir=FLAGS.model_dir,
    )


if __name__ == "__main__":
    tool.run(main, "model_dir", "input_file", "output_dir")
