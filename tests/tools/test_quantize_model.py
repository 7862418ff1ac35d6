"""tools/quantize_model.py, and the same flags of the export."""

import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from tests.tools.running import run

TEXTS = ["good film", "the bad good film", "a . b . c"]


@pytest.fixture
def model(tiny_config, tiny_vocabulary, tmp_path):
    model = BertTextClassifier(
        BertBackbone(tiny_config), tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False)
    )
    model.save_pretrained(tmp_path / "float")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return model


def test_a_model_is_quantized(model, tmp_path):
    result = run(
        "quantize_model",
        f"--model_dir={tmp_path}/float",
        f"--output_dir={tmp_path}/int8",
        f"--calibration_file={tmp_path}/texts.txt",
    )
    assert result.returncode == 0, result.stderr
    assert "MB ->" in result.stdout and "of 8 layers" in result.stdout
    assert "blocks.1.attention.query_key_value" in result.stdout
    again = BertTextClassifier.from_pretrained(tmp_path / "int8")
    assert again.backbone.quantization == "int8"
    np.testing.assert_allclose(
        again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0), atol=0.05
    )


def test_every_choice(model, tmp_path):
    result = run(
        "quantize_model",
        f"--model_dir={tmp_path}/float",
        f"--output_dir={tmp_path}/int8",
        "--attention=int8",
        "--skip=blocks.0,blocks.1.output_dense",
        "--activations=static",
        f"--calibration_file={tmp_path}/texts.txt",
    )
    assert result.returncode == 0, result.stderr
    again = BertTextClassifier.from_pretrained(tmp_path / "int8")
    assert again.backbone.quantization == {
        "mode": "int8",
        "attention": "int8",
        "skip": ["blocks.0", "blocks.1.output_dense"],
        "activations": "static",
    }


def test_mistakes_are_found_before_any_work(model, tmp_path):
    (tmp_path / "mixed.txt").write_text("one\ntwo\tthree\n")
    into = f"--output_dir={tmp_path}/int8"
    start = f"--model_dir={tmp_path}/float"
    for flags, message in (
        ((start, f"--output_dir={tmp_path}/float"), "another directory"),
        ((start, into, f"--calibration_file={tmp_path}/none.txt"), "none.txt must be a data file"),
        ((start, into, f"--calibration_file={tmp_path}/mixed.txt"), "line 2 must be 1 tab-sep"),
        ((f"--model_dir={tmp_path}/nothing", into), "nothing"),
        ((start, into, "--skip=blocks.7"), "'blocks.7'"),
        ((start, into, "--attention=int4"), "int4"),
        ((start, into, "--activations=static"), "--calibration_file must be given"),
    ):
        result = run("quantize_model", *flags)
        assert result.returncode != 0 and message in result.stderr, result.stderr
        assert "Traceback" not in result.stderr
    for flags, message in (
        ((f"--calibration_file={tmp_path}/texts.txt",), "--quantize=int8"),
        (("--attention=int8",), "--quantize=int8"),
        (("--precision=bfloat16",), "--portable must be false with --precision"),
        (("--noportable", "--quantize=int8", "--precision=bfloat16"), "float32 with --quantize"),
    ):
        result = run("export_saved_model", start, f"--export_dir={tmp_path}/served", *flags)
        assert result.returncode != 0 and message in result.stderr, result.stderr
