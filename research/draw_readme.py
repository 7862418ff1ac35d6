"""Draws the picture of the README: a review with its answer and what each word counts, and speed.

    make demo
    python -m research.draw_readme --model_dir=.cache/demo/out/model

Left, what a model of `make demo` answers, with integrated gradients under it. Right, the last
column of the table "One text from Python" in docs/performance/latency.md: the processor time
compared with PyTorch's.
"""

import pathlib
import textwrap

import numpy as np
from absl import flags

from bert_tf.base.pictures import require_picture, save_picture
from bert_tf.tools.common import tool

from .draw_results import DIGEST, digest
from .table_pictures import parse_cell

FLAGS = flags.FLAGS

_DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
_GOOD, _BAD, _OURS, _THEIRS = "#1a7f37", "#cf222e", "#1f6feb", "#afb8c1"
_LINE_WIDTH = 44  # characters of a line of text
_PANEL_WIDTH = 50  # characters of this font that fit into the panel

flags.DEFINE_string("model_dir", None, "The text classifier, such as that of `make demo`.")
flags.DEFINE_multi_string(
    "text",
    [
        "A quiet, beautifully acted film that stays with you for days.",
        "Great cast, but the jokes fall flat and the ending makes no sense.",
    ],
    "A text to answer.",
)
flags.DEFINE_string("output", str(_DOCS / "readme.png"), "The picture: .png, .svg or .pdf.")
flags.mark_flag_as_required("model_dir")


def words_of(model, text):
    """Returns the words of a text, each with what it adds to the score of the last label."""
    from bert_tf.inspection import inspect_text

    found = inspect_text(model, text, target=model.labels[-1])
    row, values = found.row, found.attributions["integrated gradients"].words
    places = [np.flatnonzero(row.words == word) for word in range(row.num_words)]
    spans = [(row.starts[place[0]], row.ends[place[-1]]) for place in places]
    return [text[start:end] for start, end in spans], values


def draw_text(panel, top, model, text):
    """Draws a text below the line `top`, with its answer; returns the line below it."""
    answer = model.classify(text)
    words, values = words_of(model, text)
    scale = np.abs(values).max()
    place, line = 0, top
    for word, value in zip(words, values):
        if place + len(word) > _LINE_WIDTH:
            place, line = 0, line + 1.35
        color = _GOOD if value > 0 else _BAD
        box = {"facecolor": color, "alpha": 0.75 * abs(value) / scale, "pad": 1.6, "linewidth": 0}
        panel.text(place, line, word, family="monospace", fontsize=9.5, va="center", bbox=box)
        place += len(word) + 1
    color = _GOOD if answer.label == model.labels[-1] else _BAD
    label = f"{answer.label}  {answer.scores[answer.label]:.2f}"
    panel.text(0, line + 1.6, label, fontsize=10, weight="bold", color=color, va="center")
    return line + 3.9


def speed_table():
    """Returns the medians of the ratios, by what was computed."""
    text = (_DOCS / "performance" / "latency.md").read_text(encoding="utf-8")
    section = text.split("## One text from Python")[1].split("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and ";" in cells[-1]:  # a median with its range
            name = cells[0].replace("`", "").split(", in seconds")[0]
            found[name] = parse_cell(cells[-1].split(";")[0]).value
    return found


def digest_of_speeds():
    """Returns what a picture holds, so that a test finds one that is older than the table."""
    return digest([f"{name}: {ratio}" for name, ratio in speed_table().items()])


def draw_speed(panel):
    ratios = speed_table()
    places = np.arange(len(ratios))
    panel.barh(places - 0.2, list(ratios.values()), 0.38, color=_OURS, label="bert_tf")
    panel.barh(places + 0.2, 1, 0.38, color=_THEIRS, label="transformers on PyTorch")
    names = [textwrap.fill(name, 22) for name in ratios]
    panel.set_yticks(places, names, fontsize=8.5)
    panel.invert_yaxis()
    panel.set_xlim(0, 1.25)
    panel.set_xlabel("processor time, MiniLM, AVX2 (smaller is better)", fontsize=8.5)
    panel.tick_params(axis="x", labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(
        loc="upper center", bbox_to_anchor=(0.4, 1.16), ncols=2, frameon=False, fontsize=8.5
    )


def main():
    require_picture(FLAGS.output, "--output")
    from matplotlib.figure import Figure

    import bert_tf

    model = bert_tf.BertTextClassifier.from_pretrained(FLAGS.model_dir)
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    line = 0.5
    for text in FLAGS.text:
        line = draw_text(left, line, model, text)
    caption = f"integrated gradients: green speaks for {model.labels[-1]}, red against it"
    left.text(0, line - 1.2, caption, fontsize=8, color="#57606a", va="center")
    left.set_xlim(-0.5, _PANEL_WIDTH)
    left.set_ylim(line - 0.4, -0.8)
    left.axis("off")
    draw_speed(right)
    options = {"metadata": {DIGEST: digest_of_speeds()}} if FLAGS.output.endswith(".png") else {}
    save_picture(figure, FLAGS.output, **options)


if __name__ == "__main__":
    tool.run(main)
