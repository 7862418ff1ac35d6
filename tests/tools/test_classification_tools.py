"""From a data set to a report with the tools: several labels, fine-tuning flags, a baseline."""

import json

import pytest

from bert_tf import BertBackbone, BertTokenizer
from tests.tools.running import results_in, run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."]
ROWS = [
    ("good film", ["film", "praise"]),
    ("bad film", ["film"]),
    ("the good", ["praise"]),
    ("the bad", []),
] * 8


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    from bert_tf import BertConfig

    root = tmp_path_factory.mktemp("tools")
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=20,
    )
    BertBackbone(config).save_pretrained(root / "checkpoint")
    BertTokenizer(WORDS, lowercase=False).save_pretrained(root / "checkpoint")
    for split in ("train", "dev", "test"):
        lines = [json.dumps({"text": text, "topics": topics}) for text, topics in ROWS]
        (root / f"{split}.jsonl").write_text("\n".join(lines))
    return root


def table(start):
    return (
        "--task_name=table",
        f"--data_dir={start}",
        "--label_column=topics",
        "--problem_type=multi_label_classification",
    )


@pytest.mark.full
def test_several_labels_with_fine_tuning_flags(start):
    output = start / "out"
    result = run(
        "run_classifier",
        *table(start),
        f"--output_dir={output}",
        f"--init_checkpoint={start}/checkpoint",
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--max_seq_length=12",
        "--learning_rate=2e-2",
        "--num_train_epochs=8",
        "--pooling=max",
        "--lora_rank=4",
        "--lora_target_modules=query_key_value,output_dense",
        "--label_smoothing=0.05",
        "--augment_swap=0.2",
        "--keep_best=val_loss",
        "--early_stopping_patience=8",
        "--layer_decay=0.9",
        "--gradient_accumulation_steps=2",
        "--eval_batch_size=32",
        "--predict_batch_size=32",
        "--train_batch_size=4",
        "--classifier_dropout=0",
    )
    assert result.returncode == 0, result.stderr
    results = results_in(output / "eval_results.txt")
    assert float(results["eval_exact_match"]) > 0.95
    assert (output / "lora.safetensors").exists()
    config = json.loads((output / "model" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config["id2label"] == {"0": "film", "1": "praise"}

    report = run(
        "evaluate",
        *table(start),
        "--labels=film,praise",
        f"--output_dir={start}/report",
        f"--predictions_file={output}/test_results.tsv",
        "--bootstrap_samples=20",
    )
    assert report.returncode == 0, report.stderr
    values = json.loads((start / "report" / "scores.json").read_text())
    assert values["exact_match"]["value"] == pytest.approx(float(results["eval_exact_match"]))
    assert values["auc"]["low"] <= values["auc"]["value"] <= values["auc"]["high"]


def test_baseline_report_and_table(tmp_path):
    rows = [
        f"{word} film number {i}\t{label}\n"
        for i in range(30)
        for word, label in (("good", "pos"), ("bad", "neg"))
    ]
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("".join(rows))
    with open(tmp_path / "test.tsv", "a") as file:
        file.write("a good mistake\tneg\n")
    task = ("--task_name=simple", f"--data_dir={tmp_path}")
    result = run(
        "research.baseline_classifier",
        *task,
        f"--output_dir={tmp_path}/base",
        "--eval_split=test",
        "--tune",
    )
    assert result.returncode == 0, result.stderr
    assert "n-grams up to 3, C=30: loss 0." in result.stdout
    report = run(
        "evaluate",
        *task,
        "--labels=neg,pos",
        f"--output_dir={tmp_path}/report",
        f"--predictions_file={tmp_path}/base/test_results.tsv",
        "--bootstrap_samples=50",
    )
    assert report.returncode == 0, report.stderr
    assert "accuracy       0.9836  [" in report.stdout and "(official)" in report.stdout
    assert "gold \\ predicted  neg  pos\nneg                30    1\n" in report.stdout
    assert report.stdout.splitlines()[-2].endswith("\tneg\tpos\t61\ta good mistake")
    assert (tmp_path / "report" / "confusion.png").read_bytes().startswith(b"\x89PNG")

    rows = (tmp_path / "base" / "test_results.tsv").read_text().splitlines()
    opposite = tmp_path / "opposite.tsv"  # the mean of both says nothing
    opposite.write_text("".join("\t".join(reversed(row.split("\t"))) + "\n" for row in rows))
    averaged = run(
        "evaluate",
        *task,
        "--labels=neg,pos",
        f"--output_dir={tmp_path}/averaged",
        f"--predictions_file={tmp_path}/base/test_results.tsv,{opposite}",
        "--bootstrap_samples=2",
        "--noplot",
    )
    assert averaged.returncode == 0, averaged.stderr
    assert json.loads((tmp_path / "averaged/scores.json").read_text())["auc"]["value"] == 0.5

    for seed, accuracy in enumerate((0.5, 0.6, 0.7)):
        (tmp_path / f"seed{seed}.txt").write_text(f"eval_accuracy = {accuracy}\n")
    printed = run(
        "compare_runs",
        f"--run=ours={tmp_path}/seed*.txt",
        f"--run=tf-idf={tmp_path}/report/scores.json",
        "--metrics=accuracy",
    )
    assert printed.stdout.splitlines()[2:] == [
        "| ours | 3 | 0.600 ± 0.100 |",
        "| tf-idf | 1 | 0.984 |",
    ], printed.stderr


def test_prepared_data(materials, tmp_path):
    result = run(
        "research.prepare_classification_data",
        "--dataset=chinese_reviews",
        f"--materials_dir={materials}",
        f"--output_dir={tmp_path}",
    )
    assert result.returncode == 0, result.stderr
    assert "train: 13" in result.stdout
    held_out = (tmp_path / "test.tsv").read_text().split("\t")[0]
    text = (tmp_path / "pretraining_text.txt").read_text()
    assert held_out not in text.replace("\n", "") and "\n\n" in text
    rows = (tmp_path / "train.tsv").read_text().splitlines()
    assert all(row.count("\t") == 1 and row.endswith(("\tpos", "\tneg")) for row in rows)


@pytest.mark.parametrize(
    "lines,words",
    [
        (["0.5\t0.5"], "must have 32 predictions"),
        (["0.5"] * 32, "line 1 must have 2 numbers"),
        (["0.5\tx"] * 32, "line 1 must have 2 numbers"),
    ],
)
def test_predictions_that_do_not_fit(start, lines, words):
    from bert_tf.errors import DataError
    from bert_tf.tasks.text_classification import table_task
    from bert_tf.tasks.text_classification.files import read_predictions

    kind = "multi_label_classification"
    examples = table_task(start, label_column="topics", problem_type=kind).read(start, "test")
    path = start / "bad.tsv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=words):
        read_predictions(path, examples, ("film", "praise"), kind)


def test_predictions_as_json_lines(tmp_path):
    from bert_tf.errors import DataError
    from bert_tf.tasks.text_classification import TextExample
    from bert_tf.tasks.text_classification.files import read_predictions

    examples = [TextExample("a", id="1"), TextExample("b", id="2")]
    path = tmp_path / "p.jsonl"

    def read(*rows, kind="single_label_classification"):
        path.write_text("\n".join(map(json.dumps, rows)))
        labels = None if kind == "regression" else ("x", "y")
        return read_predictions(path, examples, labels, kind).tolist()

    found = read({"id": "2", "label": "y"}, {"id": 1, "probabilities": [0.75, 0.25]})
    assert found == [[0.75, 0.25], [0.0, 1.0]]
    assert read({"score": 1.5}, {"label": 2}, kind="regression") == [[1.5], [2.0]]
    for rows, words in (
        (({"id": 1, "label": "x"},) * 2, "line 2 must have a unique id"),
        (({"id": 1, "label": "x"}, {"id": 3, "label": "x"}), "none for 1 ids"),
        (({"label": "z"}, {"label": "x"}), r"Received: \['z'\]"),
    ):
        with pytest.raises(DataError, match=words):
            read(*rows)
