"""Writes the files with the results of a tool."""

import json
import os

import numpy as np

from bert_tf.base.files import atomic_path
from bert_tf.tools.common.flag_table import FLAGS


def write_text(path, parts):
    """Writes a text file of these parts, atomically."""
    with atomic_path(path) as new, open(new, "w", encoding="utf-8") as file:
        file.writelines(parts)


def write_lines(path, lines):
    write_text(path, (f"{line}\n" for line in lines))


def write_table(path, rows, fmt="%.8f"):
    """Writes numbers separated by tabs, one line per row, atomically; `fmt` as in `np.savetxt`."""
    with atomic_path(path) as new:
        np.savetxt(new, rows, fmt=fmt, delimiter="\t")


def write_json(path, content, **options):
    write_text(path, [json.dumps(content, **options), "\n"])


def score_lines(scores, prefix="eval_"):
    """Formats scores as `name = value`, sorted by name."""
    return [f"{prefix}{name} = {value:.6f}" for name, value in sorted(scores.items())]


def report(lines, name="eval_results.txt", title="Eval", not_printed=()):
    """Writes lines to a file in --output_dir and prints them; the file ends with `not_printed`."""
    write_lines(os.path.join(FLAGS.output_dir, name), [*lines, *not_printed])
    print(f"***** {title} results *****", *lines, sep="\n")
