"""tools/compare_models.py: a line a model, and mistakes found."""

import re

import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.adapt import student_from_teacher
from tests.tools.running import run


@pytest.fixture(scope="module")
def start(tiny_config, tiny_vocabulary, tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    model = BertTextClassifier(
        BertBackbone(tiny_config),
        labels=["bad", "good"],
        tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
    )
    model.save_pretrained(root / "whole")
    student_from_teacher(model, num_hidden_layers=1).save_pretrained(root / "half")
    model.quantize("int8")
    model.save_pretrained(root / "int8", format="bert_tf")
    for labels, name in ((["bad", "fine"], "other"), (["good", "bad"], "turned")):
        BertTextClassifier(
            BertBackbone(tiny_config),
            labels=labels,
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
        ).save_pretrained(root / name)
    (root / "dev.tsv").write_text("good film\tgood\nbad film\tbad\nthe good\tgood\n")
    return root


def test_precisions(start):
    names = [f"{start}/whole", f"{start}/int8"]
    result = run(
        "compare_models",
        "--task_name=simple",
        f"--data_dir={start}",
        f"--model_dirs={','.join(names)}",
        "--precisions=float32,bfloat16,int8",
        "--timing_rounds=1",
    )
    assert result.returncode == 0, result.stderr
    rows = [re.split(r"\s{2,}", line.strip()) for line in result.stdout.strip().splitlines()[-5:]]
    precisions = [f"{names[0]}, {precision}" for precision in ("float32", "bfloat16", "int8")]
    assert [row[0] for row in rows] == [*names, *precisions]
    assert [row[1] == "-" for row in rows] == [False, True, True, True, True]
    assert len({row[4] for row in rows}) == 1  # all say the same here

    result = run(
        "compare_models",
        "--task_name=simple",
        f"--data_dir={start}",
        f"--model_dirs={names[0]}",
        "--precisions=float32,float16",
    )
    assert result.returncode == 1
    assert "--precisions must be among float32, bfloat16, int8. Received: float16" in result.stderr


def test_a_line_a_model(start):
    directories = [f"{start}/{name}" for name in ("whole", "half", "int8")]
    result = run(
        "compare_models",
        "--task_name=simple",
        f"--data_dir={start}",
        f"--model_dirs={','.join(directories)}",
        "--timing_rounds=1",
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.strip().splitlines()[-4:]
    head, *rows = (re.split(r"\s{2,}", line.strip()) for line in lines)
    assert head[:4] == ["parameters", "weights MB", "ms per text", "accuracy"]
    assert [row[0] for row in rows] == directories
    whole, half = (int(row[1].replace(",", "")) for row in rows[:2])
    assert half < whole and rows[2][1] == "-"
    assert float(rows[2][2]) <= float(rows[0][2])
    assert float(rows[0][4]) == float(rows[2][4])  # int8 says the same here
    assert all(float(row[3]) > 0 for row in rows)


def test_mistakes(start):
    for directories, message in (
        (f"{start}/whole,{start}/whole", "must be different directories"),
        (f"{start}/whole,{start}/other", "the same labels in the same order"),
        (f"{start}/whole,{start}/turned", "the same labels in the same order"),
        (f"{start}/nothing", "nothing"),
    ):
        result = run(
            "compare_models",
            "--task_name=simple",
            f"--data_dir={start}",
            f"--model_dirs={directories}",
        )
        assert result.returncode != 0 and message in result.stderr, result.stderr
        assert "Traceback" not in result.stderr
