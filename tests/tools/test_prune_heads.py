"""tools/prune_heads.py, run as a user runs it: prune, prune further, train on; wrong flags."""

import json

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertConfig, BertTextClassifier, BertTokenizer
from tests.tools.running import results_in, run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."]
ROWS = [("good film", "pos"), ("bad film", "neg"), ("the good.", "pos"), ("the bad.", "neg")] * 4


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A directory with a tiny trained classifier and the task's files."""
    root = tmp_path_factory.mktemp("prune_heads")
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=20,
        initializer_range=0.1,
    )
    keras.utils.set_random_seed(2)
    model = BertTextClassifier(
        BertBackbone(config), labels=["neg", "pos"], tokenizer=BertTokenizer(WORDS, lowercase=False)
    )
    model.compile(keras.optimizers.Adam(3e-3))
    model.fit([text for text, _ in ROWS], [label for _, label in ROWS], epochs=12, verbose=0)
    model.save_pretrained(root / "model")
    for split in ("train", "dev"):
        (root / f"{split}.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    return root


def flags_for(start, model, output, *more):
    return (
        "--task_name=simple",
        f"--data_dir={start}",
        f"--model_dir={model}",
        f"--output_dir={output}",
        *more,
    )


@pytest.fixture(scope="module")
def pruned(start):
    """The output directory of one run, in two rounds."""
    output = start / "pruned"
    result = run(
        "prune_heads",
        *flags_for(start, start / "model", output, "--prune_share=0.4", "--num_rounds=2"),
    )
    assert result.returncode == 0, result.stderr
    return output


def heads_of(output):
    """The configuration's heads, as pairs, and the rows of head_importance.tsv."""
    config = json.loads((output / "model" / "config.json").read_text())
    header, *lines = (output / "head_importance.tsv").read_text().splitlines()
    assert header.split("\t") == ["block", "head", "importance", "pruned_in_round"]
    gone = {(int(b), head) for b, heads in config["pruned_heads"].items() for head in heads}
    return gone, [line.split("\t") for line in lines]


def test_results(pruned, start):
    assert sorted(path.name for path in pruned.iterdir()) == [
        "eval_results.txt",
        "head_importance.tsv",
        "model",
    ]
    gone, rows = heads_of(pruned)
    assert len(gone) == 3 and len(rows) == 8
    assert [int(row[0]) * 4 + int(row[1]) for row in rows] == list(range(8))
    rounds = {(int(row[0]), int(row[1])): row[3] for row in rows}
    assert sorted(rounds.values()) == ["1", "2", "2", *["kept"] * 5]
    assert {place for place, number in rounds.items() if number != "kept"} == gone
    assert all(0 < float(row[2]) <= 1 for row in rows)
    results = results_in(pruned / "eval_results.txt")
    assert float(results["before_accuracy"]) == 1.0
    assert {"after_accuracy", "before_loss", "after_loss", "after_auc"} <= set(results)
    missing = int(results["before_parameters"]) - int(results["after_parameters"])
    assert missing == 3 * (4 * 32 * 8 + 3 * 8)
    model = BertTextClassifier.from_pretrained(pruned / "model")
    assert model.labels == ["neg", "pos"] and model.tokenizer is not None
    logits = model.predict([text for text, _ in ROWS], verbose=0)
    accuracy = np.mean(
        [model.labels[row] == label for row, (_, label) in zip(logits.argmax(axis=1), ROWS)]
    )
    assert float(results["after_accuracy"]) == pytest.approx(accuracy)


@pytest.mark.full
def test_pruned_further_and_trained_on(pruned, start):
    output = start / "further"
    result = run(
        "prune_heads",
        *flags_for(start, pruned / "model", output, "--prune_share=0.75", "--nodo_eval"),
        "--importance_split=dev",
        "--max_importance_examples=8",
        "--max_seq_length=12",
        "--nonormalize_importance",
    )
    assert result.returncode == 0, result.stderr
    before, _ = heads_of(pruned)
    gone, rows = heads_of(output)
    assert before < gone and len(gone) == 6  # all that can go
    assert [row[3] for row in rows].count("before") == 3
    assert "accuracy" not in (output / "eval_results.txt").read_text()
    trained = run(
        "run_classifier",
        "--task_name=simple",
        f"--data_dir={start}",
        "--do_train",
        "--do_eval",
        f"--init_checkpoint={output}/model",
        f"--output_dir={start}/trained",
        "--max_seq_length=16",
        "--learning_rate=3e-3",
        "--num_train_epochs=1",
        "--train_batch_size=8",
    )
    assert trained.returncode == 0, trained.stderr
    assert "eval_accuracy" in (start / "trained" / "eval_results.txt").read_text()
    config = json.loads((start / "trained" / "model" / "config.json").read_text())
    assert sum(map(len, config["pruned_heads"].values())) == 6


def full_only(*values):
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.parametrize(
    "changes,words",
    [
        (["--prune_share=1"], "in (0, 1)"),
        full_only(["--prune_share=0.9"], "at most 6 of 8 heads"),
        full_only(["--prune_share=0.01"], "more than 0"),
        full_only(["--model_dir=absent"], "must be a checkpoint"),
        full_only(["--labels=good,bad"], "The model's labels must be the task's"),
        full_only(["--data_dir=absent"], "train.tsv"),
        (["--output_dir=MODEL/.."], "--output_dir must be another"),
    ],
)
def test_wrong_flags_are_refused_before_any_work(start, tmp_path, changes, words):
    flags = flags_for(start, start / "model", tmp_path / "out", "--prune_share=0.5")
    changes = [change.replace("MODEL", str(start / "model")) for change in changes]
    result = run("prune_heads", *flags, *changes)
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
    assert list((tmp_path / "out").iterdir() if (tmp_path / "out").exists() else []) == []
