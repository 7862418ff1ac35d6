"""tools/evaluate.py on tags and answers, as a user runs it (classes: test_classification_tools)."""

import json

import pytest

from bert_tf.tasks.token_classification.files import conll_lines
from bert_tf.training.evaluation.generated_text import generated_text_scores
from tests.tools.running import run

SENTENCES = [
    (["Ada", "Lovelace", "wrote"], ["B-PER", "I-PER", "O"], ["B-PER", "O", "O"]),
    (["to", "Paris", "."], ["O", "B-LOC", "O"], ["O", "B-LOC", "O"]),
    (["Seine", "flows"], ["B-LOC", "O"], ["B-PER", "O"]),
    (["it", "rains"], ["O", "O"], ["O", "O"]),
] * 5


def scores_of(directory):
    return json.loads((directory / "scores.json").read_text())


def test_tags(tmp_path):
    (tmp_path / "predictions.txt").write_text("".join(conll_lines(SENTENCES)))
    result = run(
        "evaluate",
        "--kind=tags",
        f"--predictions_file={tmp_path}/predictions.txt",
        f"--output_dir={tmp_path}",
        "--bootstrap_samples=200",
        "--worst_errors=6",
    )
    assert result.returncode == 0, result.stderr
    scores = scores_of(tmp_path)
    assert scores["f1"]["value"] == pytest.approx(1 / 3)  # 5 of 15 found, of 15
    assert scores["accuracy"]["value"] == pytest.approx(0.8)
    assert scores["f1_LOC"]["value"] == pytest.approx(2 / 3) and scores["f1_PER"]["value"] == 0.0
    assert 0.05 < scores["f1"]["low"] < 1 / 3 < scores["f1"]["high"] < 0.65
    lines = (tmp_path / "report.txt").read_text().splitlines()
    assert lines[0].startswith("20 sentences, 50 words; intervals: bootstrap, 200 draws, 95 %")
    table = lines.index("gold \\ predicted   O  LOC  PER")
    assert [line.split()[1:] for line in lines[table + 1 : table + 4]] == [
        ["30", "0", "0"],
        ["0", "5", "5"],
        ["5", "0", "5"],
    ]
    worst = [line.split("\t") for line in lines[-6:]]
    assert worst[0] == ["2", "PER[Ada Lovelace]", "PER[Ada]", "1", "Ada Lovelace wrote"]
    assert worst[1] == ["2", "LOC[Seine]", "PER[Seine]", "3", "Seine flows"]
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_answers(tmp_path):
    def question(id, *answers):
        golds = [{"text": text, "answer_start": 0} for text in answers]
        return {"id": id, "question": f"{id}?", "answers": golds, "is_impossible": not answers}

    questions = [question("a", "the tower", "tower"), question("b"), question("c", "by the Seine")]
    paragraph = {"context": "the tower by the Seine", "qas": [*questions, question("d", "x")]}
    gold, answers = tmp_path / "dev.json", tmp_path / "predictions.json"
    gold.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    answers.write_text(json.dumps({"a": "Tower!", "b": "Paris", "c": "the Seine"}))
    flags = (
        "--kind=answers",
        f"--gold_file={gold}",
        f"--predictions_file={answers}",
        f"--output_dir={tmp_path}/out",
        "--bootstrap_samples=100",
    )
    result = run("evaluate", *flags)
    assert result.returncode == 0, result.stderr
    scores = scores_of(tmp_path / "out")
    assert scores["exact"]["value"] == 25.0 and scores["HasAns_f1"]["low"] < 100 * (1 + 2 / 3) / 3
    assert scores["f1"]["value"] == pytest.approx(100 * (1 + 2 / 3) / 4)
    lines = (tmp_path / "out" / "report.txt").read_text().splitlines()
    assert lines[0].startswith("4 questions, 1 without a prediction;")
    assert lines[-4:] == [
        "worst errors: F1, expected, predicted, id, question",
        "0.0000\tnone\tParis\tb\tb?",
        "0.0000\tx\tnot answered\td\td?",
        "0.6667\tby the Seine\tthe Seine\tc\tc?",
    ]
    assert not (tmp_path / "out" / "confusion.png").exists()

    answers.write_text(json.dumps({"z": "x"}))
    result = run("evaluate", *flags)
    assert result.returncode == 1 and "must have ids of the questions" in result.stderr
    gold.write_text("{}")
    result = run("evaluate", *flags)
    assert result.returncode == 1 and "in the SQuAD file" in result.stderr
    assert "Traceback" not in result.stderr


TEXTS = ["the cat sat on the mat", "a dog ran home", "it rains"]
REFERENCES = [["the cat sat on a mat", "the cat sat on the mat"], ["the dog ran home"], ["rain"]]


@pytest.fixture
def text_files(tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "1.txt").write_text("".join(f"{several[0]}\n" for several in REFERENCES))
    (tmp_path / "2.txt").write_text(f"{REFERENCES[0][1]}\n\n\n")
    (tmp_path / "short.txt").write_text("a\nb\n")
    (tmp_path / "empty.txt").write_text("a\n\nc\n")
    rows = zip(TEXTS, REFERENCES)
    lines = [json.dumps({"prediction": text, "target": several}) for text, several in rows]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    return tmp_path


def evaluate_texts(folder, predictions, *gold):
    flags = [f"--gold_file={folder}/{name}.txt" for name in gold]
    predictions = f"--predictions_file={folder}/{predictions}"
    return run("evaluate", "--kind=texts", predictions, *flags, f"--output_dir={folder}/out")


def test_texts_with_several_references(text_files):
    pytest.importorskip("rouge_score", reason="needs sacrebleu and rouge-score")
    pytest.importorskip("sacrebleu", reason="needs sacrebleu and rouge-score")
    result = evaluate_texts(text_files, "texts.txt", "1", "2")
    assert result.returncode == 0, result.stderr
    scores = scores_of(text_files / "out")
    expected = generated_text_scores(TEXTS, REFERENCES)
    assert {name: value["value"] for name, value in scores.items()} == pytest.approx(expected)
    lines = (text_files / "out" / "report.txt").read_text().splitlines()
    assert lines[0].startswith("3 texts, 4 references;")
    assert lines[-2] == "73.50\tthe dog ran home\ta dog ran home\t2"
    result = evaluate_texts(text_files, "texts.jsonl")
    assert result.returncode == 0, result.stderr
    assert scores_of(text_files / "out") == scores

    for predictions, gold, message in (
        ("texts.txt", ["1", "short"], "short.txt must have a line for each of the 3 texts"),
        ("texts.txt", ["empty"], "must have a reference in line 2. Received: empty lines"),
        ("texts.txt", [], "--gold_file must be set with --kind=texts, or the predictions be"),
    ):
        result = evaluate_texts(text_files, predictions, *gold)
        assert result.returncode == 1 and message in result.stderr, result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize("kind,flag", [("classes", "task_name"), ("answers", "gold_file")])
def test_what_a_kind_needs(tmp_path, kind, flag):
    result = run("evaluate", f"--kind={kind}", "--predictions_file=x", f"--output_dir={tmp_path}")
    assert result.returncode == 1 and f"--{flag} must be set with --kind={kind}" in result.stderr


def test_one_gold_file(tmp_path):
    flags = ("--gold_file=a", "--gold_file=b", "--predictions_file=x", f"--output_dir={tmp_path}")
    result = run("evaluate", "--kind=tags", *flags)
    assert result.returncode == 1, result.stderr
    assert "--gold_file must be given once with --kind=tags. Received: --gold_file=a,b" in (
        result.stderr
    )
