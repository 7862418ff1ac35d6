r"""Plots the curves of training runs from their log.jsonl.

    python tools/plot_training.py --runs=out/mlm_nsp,out/mlm --output_file=curves.png \
      --metrics=masked_lm_loss,next_sentence_accuracy --line=masked_lm_loss:5.6:unigram

Each metric has a panel, and each run a colour: a thin line for training (the means of the log's
intervals) and dots for the evaluations on held-out data (`val_...`). Needs matplotlib: pip install
'bert-tf[benchmark]'.
"""

import os

from absl import flags
from common import pictures

from bert_tf import tool
from bert_tf.errors import DataError, UserError

FLAGS = flags.FLAGS

flags.DEFINE_list("runs", None, "The directories of the runs, --output_dir of run_pretraining.py.")
flags.DEFINE_string("output_file", None, "The picture to write: a .png, .svg or .pdf file.")
flags.DEFINE_list("metrics", ["loss"], "The metrics to plot, by their names in the log.")
flags.DEFINE_list("line", [], "Horizontal lines to compare with, each as metric:value:label.")

WIDTH, HEIGHT = 5.0, 3.5  # of a panel in inches


def levels():
    """Parses --line to a dictionary from metrics to lists of (value, label)."""
    found = {}
    for line in FLAGS.line:
        try:
            metric, value, label = line.split(":", 2)
            found.setdefault(metric, []).append((float(value), label))
        except ValueError:
            raise UserError(f"--line must be metric:value:label. Received: --line={line}") from None
        if metric not in FLAGS.metrics:
            raise UserError(
                f"--line must be for one of --metrics={','.join(FLAGS.metrics)}. Received: "
                f"--line={line}"
            )
    return found


def read_run(directory):
    """Reads the lines of a run's log."""
    from bert_tf.training.callbacks import read_json_lines

    path = os.path.join(directory, "log.jsonl")
    if not os.path.exists(path):
        raise DataError(f"--runs must be directories with a log.jsonl. Received: {directory}")
    return read_json_lines(path)


def curve(lines, name):
    points = [(line["step"], line[name]) for line in lines if name in line]
    return zip(*points) if points else ((), ())


def draw(runs, levels):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * len(FLAGS.metrics), HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(FLAGS.metrics), squeeze=False)[0]
    for panel, metric in zip(panels, FLAGS.metrics):
        for number, (name, lines) in enumerate(runs.items()):
            if not any(metric in line for line in lines):
                continue  # for example, a run without the next sentence objective
            colour, label = f"C{number}", f"{name}, held out"
            panel.plot(*curve(lines, metric), color=colour, linewidth=0.8, alpha=0.7)
            dots = {"marker": "o", "markersize": 4, "linewidth": 1.2}
            panel.plot(*curve(lines, f"val_{metric}"), color=colour, label=label, **dots)
        for value, label in levels.get(metric, []):
            panel.axhline(value, color="black", linestyle="--", linewidth=0.8)
            place = {"ha": "right", "va": "bottom", "transform": panel.get_yaxis_transform()}
            panel.text(0.99, value, label, fontsize="small", **place)
        panel.set(xlabel="step", title=metric.replace("_", " "))
        if panel.get_legend_handles_labels()[1]:
            panel.legend(fontsize="small")
        panel.grid(alpha=0.3)
    return figure


def main():
    lines = levels()
    tool.require_writable(os.path.dirname(os.path.abspath(FLAGS.output_file)), "output_file")
    pictures.require_plotting(FLAGS.output_file, "output_file")
    names = [os.path.basename(os.path.normpath(run)) for run in FLAGS.runs]
    if len(set(names)) < len(names):
        names = FLAGS.runs
    runs = {name: read_run(run) for name, run in zip(names, FLAGS.runs)}
    for metric in FLAGS.metrics:
        if not any(metric in line for run in runs.values() for line in run):
            known = sorted({name for run in runs.values() for line in run for name in line})
            raise UserError(f"--metrics must be some of {known}. Received: {metric}")
    figure = draw(runs, lines)
    pictures.save(figure, FLAGS.output_file, dpi=120)
    print(f"{FLAGS.output_file}: {', '.join(runs)}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["runs", "output_file"])
    tool.run(main)
