"""CONTRIBUTING.md's example of a new task: one folder, one line, and the package does the rest."""

import os
import re
import shutil

import pytest

from tests.conftest import REPOSITORY
from tests.tools.running import run_program

PROGRAM = """
import runpy
import sys
import numpy as np
import tensorflow as tf
import bert_tf

config = bert_tf.BertConfig(
    vocab_size=10, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=24, max_position_embeddings=24,
)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."]
tokenizer = bert_tf.BertTokenizer(words)
model = bert_tf.BertPairScorer(bert_tf.BertBackbone(config), tokenizer=tokenizer)
pairs = (["good film", "bad film", "the good ."], ["good", "good", "bad film ."])
optimizer = bert_tf.training.AdamWeightDecay(1e-3)
model.compile(optimizer, gradient_accumulation_steps=2)
model.fit(pairs, [1.0, 0.0, 0.0], sample_weight=[1.0, 2.0, 0.5], verbose=0)
logits = model.predict(pairs, verbose=0)
assert logits.shape == (3, 1)
scores = model.score(*pairs)
np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits[:, 0])), atol=1e-6)
assert abs(model.score("good film", "good") - scores[0]) < 1e-6

for format in ("huggingface", "tf1", "bert_tf"):
    model.save_pretrained(format, format=format)
    opened = bert_tf.BertPairScorer.from_pretrained(format)
    np.testing.assert_allclose(opened.predict(pairs, verbose=0), logits, atol=1e-6)
model.save("model.keras")
opened = bert_tf.BertPairScorer.from_pretrained("model.keras")
np.testing.assert_allclose(opened.predict(pairs, verbose=0), logits, atol=1e-6)

served = tf.saved_model.load(model.export("served")).signatures["serving_default"]
scores = served(first=tf.constant(pairs[0]), second=tf.constant(pairs[1]))["score"]
np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits[:, 0])), atol=1e-6)

student = bert_tf.adapt.student_from_teacher(model, num_hidden_layers=1)
student.scorer.bias.assign([3.0])
distillation = bert_tf.adapt.DistillationModel(student, model, logits_weight=1.0)
distillation.compile(bert_tf.training.AdamWeightDecay(1e-2))
losses = distillation.fit(pairs, epochs=5, verbose=0).history["loss"]
assert losses[-1] < 0.5 * losses[0], losses

opened.enable_lora(2)
opened.merge_lora()
opened.quantize("int8")
np.testing.assert_allclose(opened.predict(pairs, verbose=0), logits, atol=0.05)

sys.argv[1:] = ["--model_dir=bert_tf", "--text=good film\\tgood"]
runpy.run_module("bert_tf.tools.predict", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the package and its tests with the task of CONTRIBUTING.md in it."""
    root = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("bert_tf", "tests"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", root)
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```python file=(\S+)\n(.*?)```", text, re.DOTALL))
    tests = root / "tests" / "tasks" / "pair_scoring"
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "conformance.py").write_text(files.pop("conformance.py"), encoding="utf-8")
    assert sorted(files) == ["__init__.py", "model.py", "preprocessor.py", "serving.py"]
    assert sum(len(content.splitlines()) for content in files.values()) <= 120
    folder = root / "bert_tf" / "tasks" / "pair_scoring"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    registry = folder.parent / "__init__.py"
    (line,) = re.findall(r'add the line `(".*",)` at the end of `NAMES`', text)
    content = registry.read_text(encoding="utf-8")
    changed = re.sub(r"(NAMES = \(.*?)\)", rf"\1    {line}\n)", content, count=1, flags=re.DOTALL)
    registry.write_text(changed, encoding="utf-8")
    return root


@pytest.mark.full
def test_a_new_task(tree, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    result = run_program("-c", PROGRAM, env=environment, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    score, texts = result.stdout.splitlines()[-1].split("\t")
    assert 0 < float(score) < 1 and texts == "good film ||| good"


@pytest.mark.full
def test_what_every_task_must_do(tree):
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    tests = ("--ignore=tests/conformance/test_ops.py", "-k", "pair and scoring", "-m", "")
    arguments = ("pytest", "-q", "tests/conformance", *tests)
    result = run_program("-m", *arguments, env=environment, cwd=tree, timeout=600)
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) > 15
