"""tools/convert_checkpoint.py, run as a user runs it."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  the operations of a SavedModel

from bert_tf import BertPretrainer, BertTextClassifier, BertTokenizer
from bert_tf.checkpoints import load_task_model
from tests.checkpoints import foreign
from tests.tools.running import run

FORMATS = ("keras_hub", "tf1")  # in the full suite; every export takes seconds


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("convert") / "in"
    tensors = foreign.with_prefix(foreign.random_tensors(heads=["masked_lm", "next_sentence"]))
    tensors["bert.embeddings.position_ids"] = tensors["bert.pooler.dense.bias"]
    foreign.write_huggingface(directory, tensors, architectures=["BertForPreTraining"])
    return directory


def test_converts_and_verifies(checkpoint):
    output = checkpoint.parent / "tf1"
    result = run(
        "convert_checkpoint",
        f"--input={checkpoint}",
        f"--output={output}",
        "--format=tf1",
        "--verify",
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert any(
        re.fullmatch(
            r"bert\.encoder\.layer\.1\.attention\.self\.key\.weight +24x24 +"
            r"bert/encoder/layer_1/attention/self/key/kernel",
            line,
        )
        for line in lines
    )
    assert any(
        re.fullmatch(r"bert\.embeddings\.position_ids +24 +\(left out\)", line) for line in lines
    )
    assert "BertPretrainer" in result.stdout and "1 left out" in result.stdout
    assert "largest difference between input and output: 0\n" in result.stdout
    (tanh,) = re.findall(r"would differ by: (\S+)", result.stdout)
    assert 0 < float(tanh) < 0.1
    assert "bert_tf_exact_gelu" in result.stderr
    load_task_model(BertPretrainer, output)


@pytest.fixture(scope="module")
def vocabulary_file(tmp_path_factory):
    """As many pieces as the checkpoints of `foreign` have."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "A", "film", "good"]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in special + [f"b{n}" for n in range(41)]))
    return path


def saved_model(checkpoint, output, *flags):
    return run(
        "convert_checkpoint", f"--input={checkpoint}", f"--output={output}", *flags,
        "--format=saved_model", timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    "format", ["tf h5", *(pytest.param(name, marks=pytest.mark.full) for name in FORMATS)]
)
def test_to_a_saved_model(format, tmp_path, vocabulary_file):
    tensors = foreign.random_tensors(heads=["classifier"])
    path = tmp_path / "in"
    if format == "tf h5":
        architectures = ["BertForSequenceClassification"]
        foreign.write_tf_h5(path, tensors, architectures=architectures)
        path /= "tf_model.h5"
    elif format == "keras_hub":
        foreign.write_keras_hub(path, "classifier")
    else:
        foreign.write_tf1(path, tensors)
    flags = [f"--vocab_file={vocabulary_file}", "--do_lower_case=false", "--pairs", "--verify"]
    result = saved_model(path, tmp_path / "out", *flags)
    assert result.returncode == 0, result.stderr
    assert "BertTextClassifier, version 1" in result.stdout
    assert "largest difference between input and output: " in result.stdout
    answer = tf.saved_model.load(tmp_path / "out" / "1").signatures["serving_default"]
    texts = ["A film", "good"], ["good", "a film"]
    model = BertTextClassifier.from_pretrained(
        path, tokenizer=BertTokenizer(str(vocabulary_file), lowercase=False)
    )
    found = answer(text=tf.constant(texts[0]), pair=tf.constant(texts[1]))
    np.testing.assert_allclose(found["logits"], model.predict(texts, verbose=0), atol=1e-5)


@pytest.mark.full
def test_pretraining_to_saved_models(checkpoint, tmp_path, vocabulary_file):
    flags = [f"--vocab_file={vocabulary_file}", "--do_lower_case=false"]
    result = saved_model(checkpoint, tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    assert "BertMaskedLM, version 1" in result.stdout
    result = saved_model(checkpoint, tmp_path, *flags, "--model=next_sentence_prediction")
    assert "BertNextSentencePredictor, version 2" in result.stdout


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--format=saved_model"], "--vocab_file must be given"),
        (["--format=saved_model", "--model=text_classification", "--vocab_file=VOCABULARY"],
         "must be trained before"),
        (["--format=tf1", "--pairs"], "--pairs must be used with --format=saved_model"),
    ],
)  # fmt: skip
def test_says_what_a_saved_model_lacks(flags, words, checkpoint, tmp_path, vocabulary_file):
    flags = [flag.replace("VOCABULARY", str(vocabulary_file)) for flag in flags]
    flags += ["--do_lower_case=false"] if "--vocab_file" in "".join(flags) else []
    result = run("convert_checkpoint", f"--input={checkpoint}", f"--output={tmp_path}", *flags)
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr


def test_no_head(tmp_path):
    foreign.write_huggingface(tmp_path / "in", foreign.random_tensors())
    result = saved_model(tmp_path / "in", tmp_path / "out")
    assert result.returncode == 1
    assert "--model=sentence_embedding exports" in result.stderr


def test_says_what_is_wrong(tmp_path):
    result = run("convert_checkpoint", f"--input={tmp_path}/absent", f"--output={tmp_path}/out")
    assert result.returncode == 1
    assert "must be a checkpoint" in result.stderr and "Traceback" not in result.stderr
