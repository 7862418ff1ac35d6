"""tools/convert_checkpoint.py, run as a user runs it."""

import re

import pytest

from bert_tf import BertPretrainer
from bert_tf.checkpoints import load_task_model
from tests.checkpoints import foreign
from tests.tools.running import run


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


def test_says_what_is_wrong(tmp_path):
    result = run("convert_checkpoint", f"--input={tmp_path}/absent", f"--output={tmp_path}/out")
    assert result.returncode == 1
    assert "must be a checkpoint" in result.stderr and "Traceback" not in result.stderr
