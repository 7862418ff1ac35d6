"""tools/predict.py answers with a model of any task."""

import json

import numpy as np
import pytest

from bert_tf.inputs.tables.table_files import read_table
from bert_tf.inputs.tables.table_writer import open_table
from tests.conformance.task import TEXTS, make
from tests.conformance.tasks import TASKS, tasks
from tests.tools.running import run


def rows_of(asked):
    """The texts of every example, as lines of a file."""
    if not isinstance(asked, tuple):
        return [[text] for text in asked]
    return [[first, *([rest] if isinstance(rest, str) else rest)] for first, rest in zip(*asked)]


@tasks("text", "serving", few=True)
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


def test_a_tsv_file_without_a_header_is_refused(tmp_path):
    (tmp_path / "pairs.tsv").write_text("good film\tgood\nbad film\tbad\n")
    result = run("predict", "--model_dir=absent", f"--input_file={tmp_path}/pairs.tsv")
    assert result.returncode == 1
    words = "line 2 must have a text in the column 'text'. Received: None"
    assert words in result.stderr and "without a header" in result.stderr, result.stderr


def test_lines_of_different_width_are_refused(tmp_path):
    (tmp_path / "input.txt").write_text("a\tb\nc\n")
    result = run("predict", "--model_dir=absent", f"--input_file={tmp_path}/input.txt")
    assert result.returncode == 1 and "line 2 must be 2 tab-separated texts" in result.stderr


@pytest.mark.parametrize("source", ["--text=a", "--input_file=-", "--input_file=a.txt"])
def test_columns_are_those_of_a_table(source):
    result = run("predict", "--model_dir=absent", source, "--text_column=review")
    assert result.returncode == 1 and "which is read as lines of texts" in result.stderr


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    path = tmp_path_factory.mktemp("predict") / "model"
    model = make(TASKS["text classification"], labels=["bad", "good"])
    model.save_pretrained(path)
    return model, path


def test_an_empty_line_is_a_text(classifier, tmp_path):
    texts = ["", "good film", "", "", "the bad film.", ""]
    (tmp_path / "input.txt").write_text("\n".join(texts) + "\n")
    result = run("predict", f"--model_dir={classifier[1]}", f"--input_file={tmp_path}/input.txt")
    assert result.returncode == 0, result.stderr
    shown = [line.split("\t") for line in result.stdout.splitlines()]
    assert [text for *_, text in shown] == texts
    assert [row[0] for row in shown] == [row.label for row in classifier[0].classify(texts)]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_table_is_read_by_its_header(classifier, tmp_path, suffix):
    with open_table(tmp_path / f"in{suffix}") as table:
        table.write([{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
    result = run("predict", f"--model_dir={classifier[1]}", f"--input_file={tmp_path}/in{suffix}")
    assert result.returncode == 0, result.stderr
    assert [line.split("\t")[-1] for line in result.stdout.splitlines()] == TEXTS


def predict_table(path, tmp_path, rows, suffix, to, *flags):
    """The rows of the output of one run on a table of these rows."""
    with open_table(tmp_path / f"in{suffix}") as table:
        table.write(rows)
    flags = (*flags, f"--input_file={tmp_path}/in{suffix}", f"--output_file={tmp_path}/out{to}")
    result = run("predict", f"--model_dir={path}", "--text_column=review", *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"answers: {tmp_path}/out{to}\n"
    return [row for _, row in read_table(tmp_path / f"out{to}")]


@pytest.mark.parametrize(
    "suffix, to",
    [
        (".csv", ".parquet"),
        pytest.param(".parquet", ".csv", marks=pytest.mark.full),
        pytest.param(".tsv", ".jsonl", marks=pytest.mark.full),
        pytest.param(".jsonl", ".tsv", marks=pytest.mark.full),
    ],
)
def test_tables_keep_their_columns(classifier, tmp_path, suffix, to):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    model, path = classifier
    rows = [{"id": str(n), "review": text, "label": "good"} for n, text in enumerate(TEXTS)]
    found = predict_table(path, tmp_path, rows, suffix, to)
    assert [{name: row[name] for name in rows[0]} for row in found] == rows
    for row, answer in zip(found, model.classify(TEXTS), strict=True):
        assert list(row)[3:] == ["predicted_label", "probability_bad", "probability_good"]
        assert row["predicted_label"] == answer.label
        for name, score in answer.scores.items():
            assert abs(float(row[f"probability_{name}"]) - score) < 1e-5


@pytest.mark.full
def test_blocks_are_joined(classifier, tmp_path):
    model, path = classifier
    rows = [{"review": TEXTS[n % len(TEXTS)], "n": str(n)} for n in range(9000)]
    found = predict_table(path, tmp_path, rows, ".csv", ".csv")
    assert [row["n"] for row in found] == [row["n"] for row in rows]
    labels = [answer.label for answer in model.classify(TEXTS)]
    assert [row["predicted_label"] for row in found[:6]] == labels
    assert [row["predicted_label"] for row in found[6:]] == [
        row["predicted_label"] for row in found[:-6]
    ]


def test_parts_of_an_answer_are_columns(tmp_path):
    task = TASKS["question answering"]
    model = make(task)
    model.save_pretrained(tmp_path / "model")
    rows = [{"review": first, "context": second} for first, second in zip(*task.question)]
    found = predict_table(
        tmp_path / "model", tmp_path, rows, ".jsonl", ".jsonl", "--pair_column=context"
    )
    for row, answer in zip(found, model.predict_decoded(task.question), strict=True):
        assert row["predicted_text"] == answer.text
        assert row["review"] in task.question[0]


@pytest.mark.parametrize(
    "content, words",
    [
        ("review,n\ngood,1\nbad\n", "in.csv, line 3 must have 2 fields"),
        ("text\ngood\n", "line 2 must have a text in the column 'review'"),
        ("review\n", "in.csv must be a file with texts"),
        ('review\n"good\n', "in.csv must be CSV"),
        ("review,predicted_label\ngood,1\n", "no column with the name of a prediction"),
    ],
)
def test_damaged_rows_leave_no_output(classifier, tmp_path, content, words):
    (tmp_path / "in.csv").write_text(content)
    flags = (f"--input_file={tmp_path}/in.csv", f"--output_file={tmp_path}/out.csv")
    result = run("predict", f"--model_dir={classifier[1]}", "--text_column=review", *flags)
    assert result.returncode == 1 and words in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
