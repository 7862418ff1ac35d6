r"""Compares BERT with the encoders before it: word vectors, NNLM, ELMo, GPT's objective.

    python -m research.fetch_materials
    python -m research.compare_encoders --table=encoders --work_dir=comparison

All encoders are pre-trained on the same text for about the same processor time, one thread each,
and then fine-tuned, or frozen with a trained weighted sum of their layers, on 1,000 examples of
each of five data sets, with --num_seeds seeds. The learning rate of each row is the best of three
(frozen: of four) on 1,000 examples of dev at most: of the questions for English, of each data set
for Chinese; rows of the same encoder share it. The tables are:

    encoders    every encoder, frozen and trained, compared with a model without a network
    layers      the first 1 to 4 blocks of BERT
    pooling     mean, maximum and the first token, of BERT

What has finished is not run again: the same command goes on with an interrupted comparison. The
tool writes to --work_dir:

    settings.json                 the flags that must not change
    data/, encoders/, runs/       the files of all runs, with their logs and processor times
    TABLE.md, TABLE.png           the mean of each score on the test file and its 95 % interval
    TABLE_pretraining.md          the tokens and minutes of each encoder

A quick look at two of the encoders, with a tenth of the text:

    python -m research.compare_encoders --table=encoders --work_dir=quick --encoders=cbow,bert \
      --data_sets=questions --token_share=0.1 --num_seeds=1
"""

import os

from absl import flags

from bert_tf.base import optional_packages
from bert_tf.base.json_files import read_json
from bert_tf.base.pictures import require_picture
from bert_tf.base.progress import progress_bar
from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.result_files import write_json, write_lines

from .comparison import data_sets, fine_tuning_runs
from .comparison.encoders import NAMES, WORD_VECTORS, write_config
from .comparison.runs import perform_all
from .comparison.tables import markdown
from .corpora import MATERIALS_DIRECTORY
from .table_pictures import draw_table, parse_table

FLAGS = flags.FLAGS

flags.DEFINE_enum("table", None, list(fine_tuning_runs.TABLES), "The table.")
flags.DEFINE_string("work_dir", None, "The directory of all files.")
flags.DEFINE_string(
    "materials_dir", MATERIALS_DIRECTORY, "The directory that research/fetch_materials.py wrote to."
)
flags.DEFINE_list("encoders", None, f"Of {', '.join(NAMES)}. Default: all of the table.")
flags.DEFINE_list("data_sets", None, "The names of data sets. Default: all of the table.")
flags.DEFINE_float(
    "token_share", 1.0, "The share of the tokens of the pre-training.", lower_bound=0.0
)
flags.DEFINE_integer("num_seeds", 3, "The number of seeds.", lower_bound=1, upper_bound=10)
flags.DEFINE_float("num_train_epochs", 4.0, "The epochs of each fine-tuning.", lower_bound=0.0)
flags.DEFINE_integer("num_processes", 2, "The number of runs at once.", lower_bound=1)


def chosen(flag, things):
    """Returns the things of a table that a flag names; all without the flag."""
    wanted, names = FLAGS[flag].value, [thing.name for thing in things]
    unknown = [name for name in wanted or () if name not in names]
    if unknown:
        raise UserError(
            f"--{flag} must be among {', '.join(names)} for --table={FLAGS.table}. "
            f"Received: {', '.join(unknown)}"
        )
    return [thing for thing in things if wanted is None or thing.name in wanted]


def perform(runs, title):
    with progress_bar(total=len(runs), unit="run", desc=title) as bar:
        perform_all(runs, FLAGS.num_processes, lambda: bar.update(1))


def settings():
    """Returns what all runs of a --work_dir have in common, and where they are noted."""
    values = {name: FLAGS[name].value for name in ("token_share", "num_train_epochs")}
    values["short_examples"] = data_sets.SHORT_EXAMPLES
    return values, os.path.join(FLAGS.work_dir, "settings.json")


def require_same_settings():
    """Refuses a --work_dir whose runs have other settings, of which some would not run again."""
    values, path = settings()
    if os.path.exists(path) and (before := read_json(path)) != values:
        raise UserError(
            "--work_dir must be new, or that of a comparison with the same settings. Received: "
            f"--work_dir={FLAGS.work_dir} with {before}, and now {values}"
        )


def prepare():
    perform(data_sets.preparing_runs(FLAGS.materials_dir, FLAGS.work_dir), "data")
    data_sets.write_texts(FLAGS.work_dir)
    data_sets.write_short_files(FLAGS.work_dir)
    perform([data_sets.vocabulary_run(FLAGS.work_dir)], "vocabulary")


def pretrain(encoders, languages):
    """Trains the encoders, and writes what they cost."""
    runs = []
    for language in languages:
        write_config(language, FLAGS.materials_dir, FLAGS.work_dir)
        for encoder in encoders:
            run = encoder.run(language, FLAGS.token_share, FLAGS.materials_dir, FLAGS.work_dir)
            runs.append((language, encoder, run))
    perform([run for *_, run in runs], "pre-training")
    lines = ["| encoder | text | tokens | core minutes |", "|---|---|---:|---:|"]
    for language, encoder, run in runs:
        tokens = encoder.num_tokens(language, FLAGS.token_share)
        minutes = run.record()["core_minutes"]
        lines.append(f"| {encoder.title} | {language} | {tokens:,} | {minutes:.1f} |")
    path = os.path.join(FLAGS.work_dir, f"{FLAGS.table}_pretraining.md")
    write_lines(path, lines)


def baseline_scores(columns):
    """Runs the models without a network; returns the list of the one score of each."""
    runs = [fine_tuning_runs.baseline_run(data, FLAGS.work_dir) for data in columns]
    perform(runs, "baselines")
    return [[fine_tuning_runs.baseline_score(run, data)] for run, data in zip(runs, columns)]


def scores_of(variants, columns):
    """Fine-tunes the variants on the data sets; returns the scores of the seeds, by row."""
    searched = dict.fromkeys(map(data_sets.searched_of, columns))
    candidates = [
        fine_tuning_runs.FineTuning(variant, data, FLAGS.num_train_epochs, rate)
        for variant in dict.fromkeys(variant.whole for variant in variants)
        for data in searched
        for rate in variant.learning_rates
    ]
    perform([one.run(FLAGS.work_dir) for one in candidates], "learning rates")
    best = {}
    for one in sorted(candidates, key=lambda one: one.score(FLAGS.work_dir)):
        best[one.variant, one.data] = one.learning_rate  # the last is the best
    seeds = range(
        fine_tuning_runs.SEARCH_SEED + 1, fine_tuning_runs.SEARCH_SEED + 1 + FLAGS.num_seeds
    )
    work = {
        (variant, data): [
            fine_tuning_runs.FineTuning(
                variant,
                data,
                FLAGS.num_train_epochs,
                best[variant.whole, data_sets.searched_of(data)],
                seed,
            )
            for seed in seeds
        ]
        for variant in variants
        for data in columns
    }
    perform([one.run(FLAGS.work_dir) for of_cell in work.values() for one in of_cell], FLAGS.table)
    return [
        [[one.score(FLAGS.work_dir) for one in work[variant, data]] for data in columns]
        for variant in variants
    ]


def main():
    picture = os.path.join(FLAGS.work_dir, f"{FLAGS.table}.png")
    require_picture(picture, "--table")
    table = fine_tuning_runs.TABLES[FLAGS.table]()
    encoders = chosen("encoders", list(dict.fromkeys(variant.encoder for variant in table)))
    columns = chosen("data_sets", fine_tuning_runs.data_sets_of(FLAGS.table))
    require_same_settings()
    if any(encoder.name in WORD_VECTORS for encoder in encoders):
        optional_packages.require_package("gensim", "the word vectors")
    if FLAGS.table == "encoders":
        optional_packages.require_package("sklearn", "TF-IDF")
        if any(data.is_ner for data in columns):
            optional_packages.require_package("pycrfsuite", "a CRF")
            optional_packages.require_package("seqeval", "scores of spans")
    tool.require_writable(FLAGS.work_dir, "work_dir")
    values, path = settings()
    write_json(path, values)
    prepare()
    pretrain(encoders, dict.fromkeys(data.language for data in columns))
    variants = [variant for variant in table if variant.encoder in encoders]
    rows = [
        (variant.name, scores) for variant, scores in zip(variants, scores_of(variants, columns))
    ]
    if FLAGS.table == "encoders":
        rows.insert(0, ("TF-IDF, for NER a CRF", baseline_scores(columns)))
    lines = markdown([data.column for data in columns], rows)
    write_lines(os.path.join(FLAGS.work_dir, f"{FLAGS.table}.md"), lines)
    draw_table(parse_table(lines), picture)
    print(*lines, sep="\n")


if __name__ == "__main__":
    flags.mark_flags_as_required(["table", "work_dir"])
    tool.run(main)
