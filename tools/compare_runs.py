r"""Prints a table with the mean and standard deviation of the scores of runs with several seeds.

    bert-tf compare_runs --run='bert_tf=runs/bert_*/eval_results.txt' \
      --run='TF-IDF=runs/tf_idf/eval_results.txt'

A run is a name and a glob pattern for the result files of its seeds: `eval_results.txt` of
bert-tf run_classifier (lines of `name = value`), or `scores.json` of bert-tf evaluate. The table
is in Markdown. The standard deviation is that of a sample (divided by n - 1).
"""

import glob
import json
import statistics

from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    run (repeated str): A run as NAME=FILES, where FILES is a path or a glob pattern.
    metrics (list): The scores to show, in this order. Default: all scores.
    digits (int >= 0, 3): Number of digits after the decimal point.
""")


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


def main():
    runs = [read_run(argument) for argument in FLAGS.run]
    known = dict.fromkeys(name for _, results in runs for result in results for name in result)
    unknown = set(FLAGS.metrics or ()) - set(known)
    if unknown:
        raise UserError(f"--metrics must be some of {list(known)}. Received: {sorted(unknown)}")
    metrics = FLAGS.metrics or list(known)
    print("| run | n | " + " | ".join(metrics) + " |")
    print("|---|---|" + "---|" * len(metrics))
    for name, results in runs:
        cells = [
            cell([result[metric] for result in results if metric in result], FLAGS.digits)
            for metric in metrics
        ]
        print(f"| {name} | {len(results)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    tool.run(main, "run")
