r"""A table over seeds: mean and standard deviation of every score of several runs.

    python tools/compare_runs.py --run='bert_tf=runs/bert_*/eval_results.txt' \
      --run='TF-IDF=runs/tf_idf/eval_results.txt'

A run is a name and the result files of its seeds (names with * and ? are found): `name = value`
lines as tools/run_classifier.py writes them, or the `scores.json` of tools/evaluate.py. Prints a
Markdown table. The standard deviation is that of a sample (n - 1).
"""

import glob
import json
import statistics

from absl import flags

from bert_tf import tool
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

flags.DEFINE_multi_string("run", None, "NAME=FILES; may be repeated.")
flags.DEFINE_list("metrics", None, "Which scores, in this order. Default: all.")
flags.DEFINE_integer("digits", 3, "Digits after the point.", lower_bound=0)


def read_results(path):
    """The scores of one result file."""
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
        raise UserError(
            f"{path}: expected `name = value` lines or scores.json. Received: {error}"
        ) from None


def read_run(argument):
    """The name of a run and the results of its seeds."""
    name, equals, pattern = argument.partition("=")
    if not name or not equals:
        raise UserError(f"--run must be NAME=FILES. Received: {argument!r}")
    paths = sorted(glob.glob(pattern))
    if not paths:
        raise UserError(f"--run={argument}: there is no such file.")
    return name, [read_results(path) for path in paths]


def cell(values, digits):
    """Mean ± standard deviation, or the one value."""
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
    flags.mark_flag_as_required("run")
    tool.run(main)
