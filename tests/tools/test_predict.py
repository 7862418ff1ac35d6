"""tools/predict.py answers with a model of any task."""

import json

import numpy as np

from tests.conformance.task import make
from tests.conformance.tasks import TASKS, tasks
from tests.tools.running import run


def rows_of(asked):
    """The texts of every example, as lines of a file."""
    if not isinstance(asked, tuple):
        return [[text] for text in asked]
    return [[first, *([rest] if isinstance(rest, str) else rest)] for first, rest in zip(*asked)]


@tasks("text", "serving")
def test_answers_of_any_task(name, tmp_path):
    task = TASKS[name]
    model = make(task)
    model.save_pretrained(tmp_path / "model")
    rows = rows_of(task.question)
    lines = "".join("\t".join(row) + "\n" for row in rows)
    (tmp_path / "input.txt").write_text(lines, encoding="utf-8")
    flags = (f"--model_dir={tmp_path}/model", f"--input_file={tmp_path}/input.txt")
    result = run("predict", *flags)
    assert result.returncode == 0, result.stderr
    answers = model.predict_decoded(task.question)
    for line, row, answer in zip(result.stdout.splitlines(), rows, answers, strict=True):
        *shown, texts = line.split("\t")
        assert texts == " ||| ".join(row)
        if hasattr(model, "classify"):
            assert shown == [answer.label, f"{answer.scores[answer.label]:.4f}"]
        else:
            compare(json.loads(shown[0]), answer)


def compare(shown, answer):
    """Dictionaries with named tuples, lists with arrays."""
    if isinstance(shown, dict):
        assert shown.keys() == answer._asdict().keys()
        shown = list(shown.values())
    if isinstance(shown, list):
        for one, other in zip(shown, answer, strict=True):
            compare(one, other)
    elif isinstance(shown, str):
        assert shown == answer
    else:
        np.testing.assert_allclose(shown, answer, atol=1e-5)


def test_lines_of_different_width_are_refused(tmp_path):
    (tmp_path / "input.txt").write_text("a\tb\nc\n")
    result = run("predict", "--model_dir=absent", f"--input_file={tmp_path}/input.txt")
    assert result.returncode == 1 and "line 2 must be 2 tab-separated texts" in result.stderr
