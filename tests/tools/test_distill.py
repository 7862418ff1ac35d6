"""tools/distill.py as a user runs it, on tiny models: from a teacher to a student and a table."""

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertConfig, BertTextClassifier, BertTokenizer
from bert_tf.training import AdamWeightDecay
from tests.tools.running import results_in, run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."]
ROWS = [("good film", "pos"), ("bad film", "neg"), ("the good.", "pos"), ("the bad.", "neg")] * 4


def full_only(*values):
    return pytest.param(*values, marks=pytest.mark.full)


def config(**changes):
    return BertConfig(
        **{
            "vocab_size": len(WORDS),
            "hidden_size": 32,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": 40,
            "initializer_range": 0.1,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A directory with a trained teacher, a narrower checkpoint and a task's files."""
    root = tmp_path_factory.mktemp("distill")
    keras.utils.set_random_seed(1)
    tokenizer = BertTokenizer(WORDS, lowercase=False)
    teacher = BertTextClassifier(BertBackbone(config()), labels=["neg", "pos"], tokenizer=tokenizer)
    teacher.compile(AdamWeightDecay(3e-3))
    texts, labels = zip(*ROWS)
    teacher.fit(list(texts * 8), list(labels * 8), batch_size=8, epochs=3, verbose=0)
    teacher.save_pretrained(root / "teacher")
    narrow = config(hidden_size=24, num_attention_heads=3, num_hidden_layers=2)
    BertBackbone(narrow).save_pretrained(root / "narrow")
    tokenizer.save_pretrained(root / "narrow")
    BertTextClassifier(
        BertBackbone(narrow), labels=["pos", "neg"], tokenizer=tokenizer
    ).save_pretrained(root / "swapped")
    (root / "data").mkdir()
    lines = "".join(f"{text}\t{label}\n" for text, label in ROWS)
    (root / "data" / "train.tsv").write_text(lines * 8)
    (root / "data" / "dev.tsv").write_text(lines)
    (root / "more.txt").write_text("good good film\nbad the bad\n\nthe film.\n")
    return root


def flags_for(start, output, *more):
    return (
        "--task_name=simple",
        f"--data_dir={start}/data",
        f"--teacher={start}/teacher",
        f"--output_dir={output}",
        "--max_seq_length=16",
        "--train_batch_size=8",
        "--learning_rate=3e-3",
        "--timing_rounds=1",
        *(flag.replace("START", str(start)) for flag in more),
    )


@pytest.mark.parametrize(
    "flags, layers, width",
    [
        (
            (
                "--student_layers=0,3",
                "--num_train_epochs=1.5",
                "--hidden_weight=0.1",
                "--label_smoothing=0.05",
                "--layer_decay=0.95",
            ),
            2,
            32,
        ),
        full_only(
            (
                "--student=START/narrow",
                "--num_train_epochs=3",
                "--logits_weight=1",
                "--unlabeled_file=START/more.txt",
                "--attention_weight=0.1",
                "--keep_best=val_accuracy",
                "--augment_swap=0.1",
            ),
            2,
            24,
        ),
    ],
    ids=["blocks", "narrower, without labels"],
)
def test_from_a_teacher_to_a_student(start, tmp_path, flags, layers, width):
    result = run("distill", *flags_for(start, tmp_path, *flags))
    assert result.returncode == 0, result.stderr
    results = results_in(tmp_path / "eval_results.txt")
    assert float(results["teacher_eval_accuracy"]) == 1.0
    assert float(results["student_eval_accuracy"]) > 0.9
    assert "student_at_start_eval_loss" in results
    names = ["checkpoints", "eval_results.txt", "model"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names

    student = BertTextClassifier.from_pretrained(tmp_path / "model")
    assert student.labels == ["neg", "pos"]
    backbone = student.backbone.config
    assert (backbone.num_hidden_layers, backbone.hidden_size) == (layers, width)
    predicted = student.predict([text for text, _ in ROWS], verbose=0).argmax(1)
    accuracy = np.mean([("neg", "pos")[id] == label for id, (_, label) in zip(predicted, ROWS)])
    assert accuracy == float(results["student_eval_accuracy"])

    table = result.stdout.splitlines()[-6:-2]
    assert {"parameters", "ms", "accuracy"} <= set(table[0].split())
    assert [row.split("  ")[0] for row in table[1:]] == ["teacher", "student at start", "student"]
    assert f"{sum(int(np.prod(w.shape)) for w in student.weights):,}" in table[3]


@pytest.mark.parametrize(
    "flags, words",
    [
        ((), "Exactly one of --student, --num_hidden_layers and --student_layers must be set"),
        full_only(("--student_layers=0,4",), "some of 0 to 3"),
        full_only(("--num_hidden_layers=2", "--freeze_layers=3"), "in [0, 2]"),
        (("--student=START/swapped",), "`labels` must be the teacher's"),
        full_only(("--num_hidden_layers=2", "--student_layers=0"), "must be set. Received"),
        full_only(("--student_layers=0,x",), "Received: --student_layers=0,x"),
        full_only(("--num_hidden_layers=5",), "in [1, 4]"),
        full_only(("--student_layers=",), "Exactly one of --student"),
        full_only(
            ("--num_hidden_layers=2", "--output_dir=START/x", "--teacher=START/x/model"),
            "must be another directory than that of --teacher",
        ),
        full_only(("--num_hidden_layers=2", "--temperature=0"), "--temperature must be above 0"),
        full_only(
            ("--num_hidden_layers=2", "--unlabeled_file=START/more.txt"),
            "--logits_weight must be 1 with --unlabeled_file",
        ),
        full_only(
            ("--num_hidden_layers=2", "--logits_weight=1", "--focal_gamma=2"),
            "--logits_weight must be below 1",
        ),
        full_only(("--num_hidden_layers=2", "--class_weights=1"), "2 numbers"),
    ],
)
def test_wrong_flags_are_reported_without_a_traceback(start, tmp_path, flags, words):
    result = run("distill", *flags_for(start, tmp_path / "out", *flags))
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
    assert list((tmp_path / "out").iterdir() if (tmp_path / "out").exists() else []) == []


@pytest.mark.full
def test_a_bad_line_is_found_before_training(start, tmp_path):
    (tmp_path / "more.txt").write_text("good film\nbad\tfilm\n")
    result = run(
        "distill",
        *flags_for(start, tmp_path / "out", "--num_hidden_layers=2", "--logits_weight=1"),
        f"--unlabeled_file={tmp_path}/more.txt",
    )
    assert result.returncode == 1
    assert "more.txt, line 2 must be 1 tab-separated texts" in result.stderr
    assert "Epoch" not in result.stdout
