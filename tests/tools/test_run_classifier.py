"""The classifier tools, run as a user runs them, on a tiny model: train, predict, export."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  the operations of a SavedModel

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.inputs.tables.table_files import read_table
from bert_tf.inputs.tables.table_writer import open_table
from tests.serving.operations import operations
from tests.tools.running import results_in, run

ROWS = [("good film", "pos"), ("bad film", "neg"), ("the good.", "pos"), ("the bad.", "neg")] * 4


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A directory with a tiny checkpoint and a task's files."""
    from bert_tf import BertConfig

    root = tmp_path_factory.mktemp("classifier")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
    )
    BertBackbone(config).save_pretrained(root / "checkpoint")
    BertTokenizer(words, lowercase=False).save_pretrained(root / "checkpoint")
    (root / "data").mkdir()
    for split in ("train", "dev", "test"):
        lines = [f"{text}\t{label}\n" for text, label in ROWS]
        (root / "data" / f"{split}.tsv").write_text("".join(lines))
    return root


def flags_for(start, output, *more):
    return (
        "--task_name=simple",
        f"--data_dir={start}/data",
        f"--output_dir={output}",
        "--max_seq_length=16",
        *more,
    )


def test_few_shot(start, tmp_path):
    model = f"--init_checkpoint={start}/checkpoint"
    flags = flags_for(start, tmp_path, model, "--do_train", "--few_shot_pairs=2")
    options = "--pooling=mean", "--max_train_examples=8", "--train_batch_size=4", "--do_eval"
    result = run("run_classifier", *flags, *options, "--learning_rate=1e-3")
    assert result.returncode == 0, result.stderr
    assert float(results_in(tmp_path / "eval_results.txt")["eval_accuracy"]) > 0.5
    opened = BertTextClassifier.from_pretrained(tmp_path / "model")
    assert opened.labels == ["neg", "pos"] and opened.pooling == "mean"
    for more, words in (
        (("--lora_rank=2",), "--lora_rank must not be set with --few_shot_pairs"),
        ((), "`pooling` of `classifier` must be one of ['mean', 'max', 'mean_max']"),
    ):
        result = run("run_classifier", *flags, *more)
        assert result.returncode == 1 and words in result.stderr
        assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def trained(start):
    """The output directory of one run that trains, evaluates and predicts."""
    output = start / "out"
    result = run(
        "run_classifier",
        *flags_for(start, output, f"--init_checkpoint={start}/checkpoint"),
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--predict_split=dev",
        "--predict_split=test",
        "--learning_rate=3e-3",
        "--num_train_epochs=12.5",
        "--train_batch_size=8",
        "--threshold=best",
        "--plot",
    )
    assert result.returncode == 0, result.stderr
    assert "The threshold is 0.5, with an F1 of 1.0000 on the dev file." in result.stdout
    assert "f1, precision, recall and auc are those of the class 'pos'" in result.stdout
    return output


def test_writes_the_originals_files(trained):
    results = results_in(trained / "eval_results.txt")
    assert float(results["eval_accuracy"]) > 0.95
    assert {"eval_loss", "eval_f1", "eval_auc"} <= set(results)
    assert BertTextClassifier.from_pretrained(trained / "model").threshold == 0.5
    predictions = np.loadtxt(trained / "test_results.tsv")
    np.testing.assert_allclose(predictions.sum(axis=1), 1.0, atol=1e-6)
    assert [("neg", "pos")[row] for row in predictions.argmax(1)] == [label for _, label in ROWS]
    assert sorted(path.name for path in trained.iterdir()) == [
        "calibration.png",
        "checkpoints",
        "confusion.png",
        "dev_results.tsv",
        "eval_results.txt",
        "learning_curves.png",
        "model",
        "precision_recall.png",
        "roc.png",
        "test_results.tsv",
    ]


def test_warmup_proportion(start, tmp_path):
    """Half of two steps: the first has no rate, the second half the peak's, and no weight moves by
    more than that with Adam's bias correction. Without the warm-up one moves by 0.65e-4.
    """

    def bias_of(path):
        block = BertBackbone.from_pretrained(path).encoder.blocks[0]
        return block.intermediate.bias.numpy()

    result = run(
        "run_classifier",
        *flags_for(start, tmp_path, f"--init_checkpoint={start}/checkpoint", "--do_train"),
        "--num_train_epochs=1",
        "--train_batch_size=8",
        "--warmup_proportion=0.5",
        "--learning_rate=1e-4",
        "--bias_correction",
    )
    assert result.returncode == 0, result.stderr
    change = np.abs(bias_of(tmp_path / "model") - bias_of(start / "checkpoint")).max()
    assert 0.0 < change < 0.51e-4


@pytest.mark.full
def test_ordinal_loss_and_r_drop(start, tmp_path):
    result = run(
        "run_classifier",
        *flags_for(start, tmp_path, f"--init_checkpoint={start}/checkpoint"),
        "--do_train",
        "--do_eval",
        "--learning_rate=3e-3",
        "--num_train_epochs=6",
        "--train_batch_size=8",
        "--ordinal_alpha=1.5",
        "--class_weights=balanced",
        "--r_drop=1",
    )
    assert result.returncode == 0, result.stderr
    assert float(results_in(tmp_path / "eval_results.txt")["eval_accuracy"]) > 0.9


def test_predict_and_saved_model_agree(trained, start):
    texts = ["the good film.", "bad", ""]
    result = run("predict", f"--model_dir={trained}/model", *(f"--text={text}" for text in texts))
    assert result.returncode == 0, result.stderr
    printed = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[0] for row in printed][:2] == ["pos", "neg"]

    export = run(
        "export_saved_model", f"--model_dir={trained}/model", f"--export_dir={start}/export"
    )
    assert export.returncode == 0, export.stderr
    # Such a model opens where this package is not: tests/serving/test_c_program.py.
    assert not any(name.startswith("BertTf>") for name in operations(start / "export" / "1"))
    serve = tf.saved_model.load(str(start / "export" / "1")).signatures["serving_default"]
    outputs = serve(text=tf.constant(texts))
    assert [label.decode() for label in outputs["label"].numpy()] == [row[0] for row in printed]
    probabilities = outputs["probabilities"].numpy().max(axis=1)
    np.testing.assert_allclose(probabilities, [float(row[1]) for row in printed], atol=1e-4)


def test_an_empty_line_of_the_test_file_has_a_row(trained, tmp_path):
    (tmp_path / "test.tsv").write_text("good film\n\nbad film\n\n\nthe good.\n")
    result = run(
        "run_classifier",
        "--task_name=simple",
        "--max_seq_length=16",
        f"--data_dir={tmp_path}",
        f"--output_dir={tmp_path}/out",
        f"--init_checkpoint={trained}/model",
        "--do_predict",
    )
    assert result.returncode == 0, result.stderr
    found = np.loadtxt(tmp_path / "out" / "test_results.tsv")
    assert found[[0, 2, 5]].argmax(1).tolist() == [1, 0, 1]
    assert found.shape == (6, 2) and np.ptp(found[[1, 3, 4]], axis=0).max() < 1e-6


def test_a_table_comes_back_with_predictions(trained, tmp_path):
    for split in ("dev", "test"):
        with open_table(tmp_path / f"{split}.csv") as table:
            table.write(
                [{"n": n, "review": text, "label": label} for n, (text, label) in enumerate(ROWS)]
            )
    result = run(
        "run_classifier",
        "--task_name=table",
        "--text_column=review",
        "--id_column=n",
        "--max_seq_length=16",
        f"--data_dir={tmp_path}",
        f"--output_dir={tmp_path}/out",
        f"--init_checkpoint={trained}/model",
        "--do_eval",
        "--do_predict",
    )
    assert result.returncode == 0, result.stderr
    assert "gold \\ predicted  neg  pos\nneg                 8    0\npos " in result.stdout
    probabilities = np.loadtxt(tmp_path / "out" / "test_results.tsv")
    rows = [row for _, row in read_table(tmp_path / "out" / "test_predictions.csv")]
    for number, (row, (text, label)) in enumerate(zip(rows, ROWS, strict=True)):
        assert list(row.values())[:4] == [str(number), text, label, label]
        found = [float(row[f"probability_{name}"]) for name in ("neg", "pos")]
        np.testing.assert_allclose(found, probabilities[number], atol=1e-6)
    assert list(rows[0])[:4] == ["n", "review", "label", "predicted_label"]


@pytest.mark.parametrize(
    "flags,words",
    [
        ((), "At least one of --do_train"),
        (("--do_train",), "--init_checkpoint must be set with --do_train"),
        (("--do_eval", "--init_checkpoint=absent"), "must be a checkpoint"),
        (
            ("--do_eval", "--init_checkpoint=x", "--ordinal_alpha=1.5", "--focal_gamma=2"),
            "--ordinal_alpha must not be set with --label_smoothing or --focal_gamma",
        ),
        (("--do_predict", "--threshold=2"), "in [0, 1], or `best` with a dev file"),
        (("--do_eval", "--max_seq_length=400", "--init_checkpoint=CHECKPOINT"), "in [3, 40]"),
    ],
)
def test_wrong_flags_are_reported_without_a_traceback(start, tmp_path, flags, words):
    flags = [flag.replace("CHECKPOINT", str(start / "checkpoint")) for flag in flags]
    result = run("run_classifier", *flags_for(start, tmp_path / "out", *flags))
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
    assert list((tmp_path / "out").iterdir() if (tmp_path / "out").exists() else []) == []


def test_an_empty_label_is_found_before_training(start, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.tsv").write_text("good film\tpos\nbad film\tneg\n")
    (data / "dev.tsv").write_text("good film\tpos\nbad film\t\n")
    result = run(
        "run_classifier",
        "--task_name=simple",
        f"--data_dir={data}",
        f"--output_dir={tmp_path}/out",
        f"--init_checkpoint={start}/checkpoint",
        "--max_seq_length=16",
        "--do_train",
    )
    assert result.returncode == 1
    assert "dev.tsv must have a label for every example" in result.stderr
    assert "Traceback" not in result.stderr and "Epoch" not in result.stdout


def test_help_needs_no_tensorflow_device(start):
    result = run("run_classifier", "--helpfull")
    assert "--init_checkpoint" in result.stdout
