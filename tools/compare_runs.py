r"""Prints a table with the mean and standard deviation of the scores of runs with several seeds.

    bert-tf compare_runs --run='bert_tf=runs/bert_*/eval_results.txt' \
      --run='TF-IDF=runs/tf_idf/eval_results.txt'

A run is a name and a glob pattern for the result files of its seeds: `eval_results.txt` of
bert-tf run_classifier (lines of `name = value`), or `scores.json` of bert-tf evaluate. The table
is in Markdown. The standard deviation is that of a sample (divided by n - 1).

With --kind, each run is a file of predictions for the same examples, and the table has, for each
run but the first, the p-value of its difference from the first:

    bert-tf compare_runs --kind=classes --task_name=sst-2 --data_dir=SST-2 --split=dev \
      --run='bert_tf=out/dev_results.tsv' --run='TF-IDF=tf_idf/dev_results.tsv'

The files are those of bert-tf evaluate: --kind=classes, tags, answers or texts, with the same flags
for the gold labels; or the results of searches in TREC's form (--kind=rankings), with the grades in
--gold_file. --test=randomization exchanges the predictions of a random half of the examples, and
the p-value is the share of exchanges that make at least such a difference. --test=bootstrap draws
examples, as sacrebleu does, which gives smaller p-values.
"""

import glob
import json
import statistics

import numpy as np

from bert_tf.errors import DataError, UserError, user_error
from bert_tf.tools.common import scored_files, tool
from bert_tf.tools.common.checks import positive_integers
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    run (repeated str): A run as NAME=FILES, where FILES is a path or a glob pattern.
    metrics (list): The scores to show, in this order. Default: all scores.
    digits (int >= 0, 3): Number of digits after the decimal point.
    kind (classes|tags|answers|texts|rankings): The kind of the predictions that --run names.
        Default: --run names files of scores.
    test (randomization|bootstrap, randomization): With --kind: the test of the p-values.
    samples (int >= 1, 1000): With --kind: the number of draws.
    seed (int, 0): With --kind: the seed of the draws.
    k (list, 10): With --kind=rankings: how many documents of each ranking count; several numbers.
""")
scored_files.define_gold()


def read_results(path):
    """Reads the scores of one result file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if path.endswith(".json"):
            return {
                name: float(value["value"] if isinstance(value, dict) else value)
                for name, value in json.loads(text).items()
            }
        pairs = [line.split(" = ") for line in text.splitlines() if line.strip()]
        return {name.removeprefix("eval_"): float(value) for name, value in pairs}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        expected = "be a file with lines of `name = value`, or a scores.json"
        raise user_error(path, expected, error) from None


def read_run(argument):
    """Returns the name of a run and the results of its seeds."""
    name, equals, pattern = argument.partition("=")
    if not name or not equals:
        raise UserError(f"--run must be NAME=FILES. Received: --run={argument}")
    paths = sorted(glob.glob(pattern))
    if not paths:
        raise UserError(f"--run must match at least one file. Received: --run={argument}")
    return name, [read_results(path) for path in paths]


def cell(values, digits):
    """Formats values as mean ± standard deviation, or a single value alone."""
    if not values:
        return ""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def comparisons(path, other):
    """Returns the `Comparison` of two files of predictions, by the name of the score."""
    if FLAGS.kind == "rankings":
        return _compared_rankings(path, other)
    from bert_tf.training.evaluation.significance import compare_systems

    rows, num_examples = _SCORE_ROWS[FLAGS.kind](path, other)
    return compare_systems(rows, num_examples, FLAGS.test, FLAGS.samples, FLAGS.seed)


def _class_rows(path, other):
    from bert_tf.training.evaluation.scores import class_score_rows

    sides = [scored_files.read_classes(name) for name in (path, other)]
    (examples, gold, _, _, task), _ = sides
    gold = np.concatenate([gold, gold])
    predicted = np.concatenate([side[2] for side in sides])
    kind, names = task.problem_type, FLAGS.metrics  # scikit-learn takes long for all scores
    return class_score_rows(gold, predicted, kind, FLAGS.threshold, names), len(examples)


def _tag_rows(path, other):
    from bert_tf.tasks.token_classification.metrics import tagging_score_rows

    sides = [scored_files.read_tags(name) for name in (path, other)]
    (words, gold, _), (other_words, other_gold, _) = sides
    for number, pair in enumerate(zip(zip(words, gold), zip(other_words, other_gold)), start=1):
        if pair[0] != pair[1]:
            expected = f"have the words and gold tags of {path}"
            shown = " ".join(other_words[number - 1])[:80]
            raise user_error(other, expected, f"{shown!r} in sentence {number}", DataError)
    _require_as_many(path, words, other, other_words, "sentences")
    predicted = [*sides[0][2], *sides[1][2]]
    return tagging_score_rows([*gold, *gold], predicted, FLAGS.strict_scheme), len(words)


def _answer_rows(path, other):
    from bert_tf.tasks.question_answering.metrics import squad_score_rows

    sides = [scored_files.read_answers(name) for name in (path, other)]
    (examples, _, version_2), _ = sides
    return squad_score_rows(examples, [side[1] for side in sides], version_2), len(examples)


def _text_rows(path, other):
    from bert_tf.training.evaluation.generated_text import generated_text_rows

    (texts, references), (others, other_references) = map(scored_files.read_texts, (path, other))
    _require_as_many(path, texts, other, others, "texts")
    for number, pair in enumerate(zip(references, other_references), start=1):
        if pair[0] != pair[1]:
            expected = f"have the references of {path}"
            raise user_error(other, expected, f"{pair[1]} of text {number}", DataError)
    options = {"names": FLAGS.metrics} if FLAGS.metrics else {}
    both = [*texts, *others], [*references, *references]
    return generated_text_rows(*both, FLAGS.tokenize, **options), len(texts)


def _compared_rankings(path, other):
    from bert_tf.tasks.sentence_embedding.files import read_qrels, read_run
    from bert_tf.training.evaluation.ranking import score_rankings

    qrels, cutoffs = read_qrels(scored_files.gold_file()), positive_integers("k")
    # A query that one of the searches does not answer counts with zeros.
    one, two = (score_rankings(read_run(name), qrels, cutoffs, True) for name in (path, other))
    return one.compare(two, FLAGS.test, FLAGS.samples, FLAGS.seed)


def _require_as_many(path, examples, other, others, what):
    if len(examples) != len(others):
        expected = f"have the {len(examples)} {what} of {path}"
        raise user_error(other, expected, len(others), DataError)


_SCORE_ROWS = {
    "classes": _class_rows,
    "tags": _tag_rows,
    "answers": _answer_rows,
    "texts": _text_rows,
}


def print_comparisons():
    """Prints a line with the scores of each run, and their p-values against the first."""
    scored_files.check_flags()
    named = [argument.partition("=")[::2] for argument in FLAGS.run]
    if len(named) < 2 or not all(name and path for name, path in named):
        received = ", ".join(f"--run={argument}" for argument in FLAGS.run)
        expected = "be given twice or more with --kind, as NAME=FILE, the baseline first"
        raise user_error("--run", expected, received)
    (baseline, path), *others = named
    compared = {name: comparisons(path, other) for name, other in others}
    first, digits = next(iter(compared.values())), FLAGS.digits
    metrics = chosen_metrics(first)
    rows = {baseline: [f"{first[metric].score:.{digits}f}" for metric in metrics]}
    for name, found in compared.items():
        rows[name] = [
            f"{found[metric].other:.{digits}f} (p = {found[metric].p_value:.{digits}f})"
            if metric in found
            else ""
            for metric in metrics
        ]
    print_table(["run", *metrics], [[name, *cells] for name, cells in rows.items()])


def chosen_metrics(known):
    """Returns --metrics, or all known names."""
    unknown = set(FLAGS.metrics or ()) - set(known)
    if unknown:
        raise UserError(f"--metrics must be some of {list(known)}. Received: {sorted(unknown)}")
    return FLAGS.metrics or list(known)


def print_table(header, rows):
    for cells in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(cells) + " |")


def main():
    if FLAGS.kind:
        print_comparisons()
        return
    runs = [read_run(argument) for argument in FLAGS.run]
    known = dict.fromkeys(name for _, results in runs for result in results for name in result)
    metrics, rows = chosen_metrics(known), []
    for name, results in runs:
        columns = ([r[metric] for r in results if metric in r] for metric in metrics)
        cells = [cell(values, FLAGS.digits) for values in columns]
        rows.append([name, str(len(results)), *cells])
    print_table(["run", "n", *metrics], rows)


if __name__ == "__main__":
    tool.run(main, "run")
