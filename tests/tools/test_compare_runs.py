"""tools/compare_runs.py on files of predictions (files of scores: test_classification_tools)."""

import json

import pytest

from bert_tf.tasks.token_classification.files import conll_lines
from tests.tools.running import run

WORDS, TAGS, WRONG = ["Ada", "wrote"], ["B-PER", "O"], ["O", "O"]


def table_of(*flags):
    result = run("compare_runs", *flags)
    assert result.returncode == 0, result.stderr
    header, _, *rows = (line.strip("| ").split(" | ") for line in result.stdout.splitlines())
    return header, rows


def p_value(cell):
    return float(cell.partition("(p = ")[2].rstrip(")"))


def test_classes(tmp_path):
    gold = ["0", "1"] * 10
    (tmp_path / "dev.tsv").write_text("".join(f"text\t{label}\n" for label in gold))
    for name, wrong in {"best": 0, "second": 1, "worst": 12}.items():
        lines = []
        for row, label in enumerate(gold):
            is_one = (label == "1") != (row < wrong)
            lines.append("0.2\t0.8\n" if is_one else "0.8\t0.2\n")
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    data = ("--kind=classes", "--task_name=simple", f"--data_dir={tmp_path}", "--split=dev")
    runs = [f"--run={name}={tmp_path}/{name}.tsv" for name in ("best", "second", "worst")]
    header, rows = table_of(*data, "--labels=0,1", *runs, "--metrics=accuracy", "--samples=400")
    assert header == ["run", "accuracy"]
    assert [row[0] for row in rows] == ["best", "second", "worst"]
    assert rows[0][1] == "1.000" and rows[1][1] == "0.950 (p = 1.000)"
    assert rows[2][1].startswith("0.400") and p_value(rows[2][1]) < 0.02


def test_tags(tmp_path):
    for name, tags in {"a": TAGS, "b": WRONG}.items():
        sentences = [(WORDS, TAGS, tags)] * 8
        (tmp_path / f"{name}.txt").write_text("".join(conll_lines(sentences)))
    flags = ["--kind=tags", "--metrics=f1", "--test=bootstrap", "--samples=50", "--digits=2"]
    runs = [f"--run={name}={tmp_path}/{name}.txt" for name in "ab"]
    assert table_of(*flags, *runs)[1] == [["a", "1.00"], ["b", "0.00 (p = 0.02)"]]

    (tmp_path / "b.txt").write_text("".join(conll_lines([(WORDS, WRONG, WRONG)] * 8)))
    result = run("compare_runs", *flags, *runs)
    assert result.returncode == 1 and "b.txt must have the words and gold tags" in result.stderr
    (tmp_path / "b.txt").write_text("".join(conll_lines([(WORDS, TAGS, TAGS)] * 3)))
    result = run("compare_runs", *flags, *runs)
    assert result.returncode == 1 and "must have the 8 sentences of" in result.stderr


def test_rankings_and_answers(tmp_path):
    queries = [f"q{number}" for number in range(8)]
    (tmp_path / "qrels").write_text("".join(f"{query} 0 d1 1\n" for query in queries))
    for name, order in {"a": ("d1", "d2"), "b": ("d2", "d1")}.items():
        lines = [f"{q} Q0 {d} 1 {1 / n} x\n" for q in queries for n, d in enumerate(order, 1)]
        (tmp_path / name).write_text("".join(lines))
    runs = [f"--run={name}={tmp_path}/{name}" for name in "ab"]
    flags = ["--kind=rankings", f"--gold_file={tmp_path}/qrels", "--k=2", "--metrics=mrr@2"]
    (_, first), (_, second) = table_of(*flags, *runs)[1]
    assert first == "1.000" and second.startswith("0.500") and p_value(second) < 0.05

    answer = {"text": "Paris", "answer_start": 0}
    questions = [{"id": query, "question": "Where?", "answers": [answer]} for query in queries]
    squad = {"data": [{"paragraphs": [{"context": "Paris is big", "qas": questions}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(squad))
    for name, text in {"a": "Paris", "b": "big"}.items():
        (tmp_path / name).write_text(json.dumps(dict.fromkeys(queries, text)))
    flags = ["--kind=answers", f"--gold_file={tmp_path}/dev.json", "--metrics=f1"]
    (_, first), (_, second) = table_of(*flags, *runs)[1]
    assert first == "100.000" and second.startswith("0.000") and p_value(second) < 0.05


def test_texts(tmp_path):
    pytest.importorskip("rouge_score", reason="needs sacrebleu and rouge-score")
    pytest.importorskip("sacrebleu", reason="needs sacrebleu and rouge-score")
    texts = ["the cat sat on the mat", "it rained all day today"] * 4
    (tmp_path / "gold.txt").write_text("\n".join(texts))
    (tmp_path / "a.txt").write_text("\n".join(texts))
    (tmp_path / "b.txt").write_text("\n".join("no" for _ in texts))
    (tmp_path / "c.txt").write_text("one\n")
    flags = ["--kind=texts", f"--gold_file={tmp_path}/gold.txt", "--metrics=bleu,ter"]
    runs = [f"--run={name}={tmp_path}/{name}.txt" for name in "ab"]
    (_, bleu, ter), (_, *others) = table_of(*flags, *runs)[1]
    assert (bleu, ter) == ("100.000", "0.000") and all(p_value(cell) < 0.05 for cell in others)
    result = run("compare_runs", *flags, runs[0], f"--run=c={tmp_path}/c.txt")
    assert result.returncode == 1 and "must have a line for each of the 1 texts" in result.stderr


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--run=a=x"], "--run must be given twice or more with --kind"),
        (["--run=a=x", "--run=b"], "as NAME=FILE, the baseline first. Received: --run=a=x, --run"),
        (["--kind=rankings", "--run=a=x", "--run=b=y"], "--gold_file must be set with --kind"),
    ],
)
def test_bad_flags(flags, message):
    result = run("compare_runs", "--kind=tags", *flags)
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
