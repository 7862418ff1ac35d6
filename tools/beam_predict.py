r"""Answers a corpus of any size with a trained model, with Apache Beam.

    bert-tf beam_predict --model_dir=minilm --input_file="corpus/*.jsonl" \
        --output_file=out/vectors --output_format=parquet --dead_letter_file=out/dead.jsonl
    bert-tf beam_predict --model_dir=out/squad --input_file=questions.csv \
        --text_column=question --pair_column=context --output_file=out/answers
    bert-tf beam_predict --model_dir=out/ranker --method=rerank --relevant_label=relevant \
        --input_file=pairs.parquet --text_column=query --pair_column=passage --output_file=out/ranks

Reads text (one example per line), JSON lines, CSV, TSV, Parquet and TFRecord files, and writes
OUTPUT-00000-of-00005.jsonl and so on: the input's columns and the answer, in the order of the
input. Rows that cannot be read or answered go to --dead_letter_file with their file and position.
Needs `pip install 'bert-tf[beam]'`. docs/beam.md explains the rest.
"""

import itertools
import os

from bert_tf import tasks
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.beam_flags import is_local, num_workers, pipeline_options
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.model_flags import kind_of_model

_INPUT_FORMATS = ("text", "jsonl", "csv", "tsv", "parquet", "tfrecord")
_FIRST_ROWS = 1000  # that are looked at before any work
_OUTPUT_FORMATS = ("jsonl", "csv", "text", "parquet", "tfrecord")

define_flags(f"""
    input_file (list): The files of the corpus: paths, directories or patterns such as
        texts/*.jsonl, of any file system of Beam. Files that end in .gz, .bz2 or .xz are
        decompressed.
    input_format (auto|{"|".join(_INPUT_FORMATS)}, auto): The format of all files; auto: what the
        ending of each says. In text, a line is an example, also an empty one; for answer, rerank
        and with --pair_column, a tab separates its two texts. csv (RFC 4180) and tsv (no quoting)
        have a header; tfrecord has tf.train.Examples.
    text_column (str, text): The column, JSON key or feature of the text. What else a task reads has
        columns of its names.
    pair_column (str): The column of the second text of a pair: of the context for answer, of the
        document for rerank, which need one (in text files it is called pair).
    output_file (str): The output's path without number and ending. Files of an earlier run there
        are replaced when everything is written.
    output_format ({"|".join(_OUTPUT_FORMATS)}, jsonl): The format. Vectors are lists in jsonl,
        lists of a fixed size in parquet and floats in tfrecord; other answers are JSON. text is the
        answer and the texts, separated by tabs.
    answer_column (str, answer): The name of the answer's column.
    num_shards (int >= 1): Number of output files, which are also what the work is divided into.
        Default: one per 32 MiB of input, at least one per process.
    method (str, auto): What to ask the model: {", ".join(tasks.answers())}, or a method of a task
        of your own, which --import_modules registers. auto: what its task does. rerank: the score
        of pairs of a query and a document by a text classifier.
    relevant_label (str): For rerank with a classifier of labels: the label whose probability is the
        score.
    token_budget (int >= 1, 4096): Maximum number of tokens that a process computes at a time,
        padding counted.
    threads (int >= 1): Number of TensorFlow's threads per process. Default: the CPUs divided by the
        processes of the DirectRunner; with another runner TensorFlow's own choice.
    dead_letter_file (str): A file of JSON lines for what cannot be read or answered: source,
        position, element and error. Default: the first such row ends the run with an error.
""")


def method() -> str:
    """Returns the method, from --method or from the files of the model."""
    if FLAGS.method not in ("auto", *tasks.answers()):
        known = ", ".join(tasks.answers())
        raise UserError(f"--method must be auto or in {known}. Received: --method={FLAGS.method}")
    if FLAGS.method != "auto" and FLAGS.model == "auto":
        from bert_tf.checkpoints.opening import open_pretrained

        open_pretrained(FLAGS.model_dir)  # its files need not name a class: any encoder can encode
        return FLAGS.method
    name = kind_of_model().__name__
    fitting = [one for one, (spec, _) in tasks.answers().items() if spec.model == name]
    if not fitting or FLAGS.method not in ("auto", *fitting):
        raise flag_error(
            "method", f"must be one that the model has: {', '.join(fitting) or 'none'} for {name}"
        )
    return fitting[0] if FLAGS.method == "auto" else FLAGS.method


def text_names(chosen: str, formats: set[str]) -> tuple[str, ...]:
    """Returns the names of the columns of texts, and then of what else the task reads.

    Raises:
        UserError: If the method needs another number of texts.
    """
    pair = FLAGS.pair_column
    spec, asked = tasks.answers()[chosen]
    if 1 not in asked.texts and pair is None:
        if formats != {"text"}:
            raise flag_error(
                "pair_column", f"must be given with --method={chosen}, which takes pairs"
            )
        pair = "pair"
    if 2 not in asked.texts and pair is not None:
        raise flag_error(
            "pair_column", f"must not be set with --method={chosen}, which takes single texts"
        )
    texts = (FLAGS.text_column,) if pair is None else (FLAGS.text_column, pair)
    names = (*texts, *spec.given_inputs)
    if len({*names, FLAGS.answer_column}) <= len(names):
        expected = "be different"
        received = ", ".join([*names, FLAGS.answer_column])
        raise user_error("--text_column, --pair_column and --answer_column", expected, received)
    return names


def check_output():
    if not os.path.basename(FLAGS.output_file):
        raise flag_error("output_file", "must be a path with a name, to which numbers are added")
    if "://" not in FLAGS.output_file:
        tool.require_writable(os.path.dirname(FLAGS.output_file) or ".", "output_file")


def require_kept(inputs, old):
    """Requires that no input file is replaced: as one of the `old` outputs, or by dead letters."""
    places = {os.path.realpath(path) for path in old}
    overwritten = sorted(path for path in inputs if os.path.realpath(path) in places)
    if overwritten:
        expected = "not be the path of input files, which would be replaced"
        raise user_error("--output_file", expected, ", ".join(overwritten))
    letters = FLAGS.dead_letter_file
    if letters and "://" not in letters:
        tool.require_output_file(letters, "dead_letter_file", inputs)
    elif letters in inputs:
        raise UserError(f"--dead_letter_file must not be an input file. Received: {letters}")


def first_rows(shards, names) -> list:
    """Returns the first rows of the corpus that can be read.

    Raises:
        UserError: If none of them has the columns of the texts.
    """
    from bert_tf.beam.readers import read_range
    from bert_tf.beam.shards import CorpusEntry

    parts = (part for shard in shards for part in shard.ranges)
    rows = (
        row for part in parts for row in read_range(part, names) if isinstance(row, CorpusEntry)
    )
    rows = list(itertools.islice(rows, _FIRST_ROWS))
    if rows and not any(row.columns.keys() >= set(names) for row in rows):
        received = f"{', '.join(names)}; {rows[0].source} has {', '.join(rows[0].columns)}"
        raise user_error("--text_column and --pair_column", "be columns of the input", received)
    return rows


def main():
    options = pipeline_options()
    require_package("apache_beam", "Beam programs")
    check_output()
    if FLAGS.relevant_label is not None and FLAGS.method not in ("auto", "rerank"):
        raise flag_error("relevant_label", "must be used with --method=rerank", "method")
    chosen = method()
    if chosen == "classify" and FLAGS.relevant_label is not None:
        raise UserError("--method must be rerank with --relevant_label. Received: --method=auto")

    from bert_tf.beam import prediction, shards, writers
    from bert_tf.beam.model_handler import BertModelHandler

    least = num_workers() if is_local() else 1
    given = None if FLAGS.input_format == "auto" else FLAGS.input_format
    parts = shards.plan_shards(FLAGS.input_file, given, FLAGS.num_shards, least)
    ranges = [one for part in parts for one in part.ranges]
    names = text_names(chosen, {one.format for one in ranges})
    old = prediction.old_outputs(FLAGS.output_file, FLAGS.output_format)
    require_kept({one.path for one in ranges}, old)
    rows = first_rows(parts, names)
    schema = writers.schema_of(rows) if FLAGS.output_format in writers.NEED_SCHEMA else None
    threads = FLAGS.threads or (max(1, os.cpu_count() // num_workers()) if is_local() else None)
    handler = BertModelHandler(
        FLAGS.model_dir,
        chosen,
        token_budget=FLAGS.token_budget,
        relevant_label=FLAGS.relevant_label,
        num_threads=threads,
    )
    layout = writers.Layout(FLAGS.output_format, FLAGS.answer_column, schema)
    staging = prediction.staging_folder(FLAGS.output_file)
    transform = prediction.PredictCorpus(
        handler, parts, names, layout, FLAGS.output_file, staging, FLAGS.dead_letter_file
    )
    predicted, dead = prediction.predict_corpus(transform, options, FLAGS.max_retries)
    print(f"read {predicted + dead:,}, predicted {predicted:,}, dead letters {dead:,}")
    written = prediction.old_outputs(FLAGS.output_file, FLAGS.output_format)
    print(
        f"wrote {len(written)} files, {FLAGS.output_file}-*{writers.OUTPUT_SUFFIXES[layout.format]}"
    )


if __name__ == "__main__":
    tool.run(main, "model_dir", "input_file", "output_file")
