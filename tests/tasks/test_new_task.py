"""CONTRIBUTING.md's example of a task: a package outside of bert_tf, and bert_tf does the rest."""

import json
import os
import re
import shutil

import pytest

from tests.conftest import REPOSITORY
from tests.server.process import ServerProcess
from tests.tools.running import run_program

FILES = ["__init__.py", "files.py", "model.py", "preprocessor.py", "serving.py"]
PROGRAM = """
import json
import os
import apache_beam as beam
import numpy as np
import tensorflow as tf
import bert_tf
import review_stars
from apache_beam.ml.inference.base import RunInference
from apache_beam.options.pipeline_options import PipelineOptions
from bert_tf.beam.model_handler import BertModelHandler
from review_stars.model import StarRater

config = bert_tf.BertConfig(
    vocab_size=10, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=24, max_position_embeddings=24,
)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."]
tokenizer = bert_tf.BertTokenizer(words)
model = StarRater(bert_tf.BertBackbone(config), most_stars=10, tokenizer=tokenizer)
texts, ages, stars = ["good film", "bad film .", "the good"] * 2, [20.0, 70, 30] * 2, [9, 2, 7] * 2
reviews = (texts, ages)
model.compile(bert_tf.training.AdamWeightDecay(2e-2), gradient_accumulation_steps=2)
losses = model.fit(reviews, stars, epochs=8, sample_weight=[1.0, 2.0, 0.5] * 2, verbose=0)
assert losses.history["loss"][-1] < losses.history["loss"][0]
values = model.predict(reviews, verbose=0)
assert values.shape == (6, 2)
ratings = model.rate(reviews)
deviations = np.exp(values[:, 1] / 2)
np.testing.assert_allclose(ratings, np.stack([values[:, 0], deviations], 1), rtol=1e-5)
np.testing.assert_allclose(model.rate((texts[0], 20)), ratings[0], rtol=1e-4)
assert abs(model.rate((texts[0], 90)).stars - ratings[0].stars) > 1e-6  # the age counts

for format in ("huggingface", "tf1", "bert_tf"):
    model.save_pretrained(format, format=format)
    opened = StarRater.from_pretrained(format)
    assert opened.most_stars == 10 and bert_tf.checkpoints.find_task_class(format) is StarRater
    np.testing.assert_allclose(opened.predict(reviews, verbose=0), values, atol=1e-5)
model.save("model.keras")
opened = StarRater.from_pretrained("model.keras")
np.testing.assert_allclose(opened.predict(reviews, verbose=0), values, atol=1e-5)

with open("huggingface/config.json") as file:  # the task's own file is enough
    content = json.load(file)
del content["bert_tf"], content["architectures"]
os.rename("huggingface", "other")
with open("other/config.json", "w") as file:
    json.dump(content, file)
assert bert_tf.checkpoints.find_task_class("other") is StarRater
opened = StarRater.from_pretrained("other")
np.testing.assert_allclose(opened.predict(reviews, verbose=0), values, atol=1e-5)

signatures = tf.saved_model.load(model.export("served")).signatures
served = signatures["serving_default"](text=tf.constant(texts), age=tf.constant(ages))
np.testing.assert_allclose(served["stars"], values[:, 0], atol=1e-5)
tokens = {**model.tokenize(texts), "age": tf.constant(ages)}
np.testing.assert_allclose(signatures["tokens"](**tokens)["stars"], values[:, 0], atol=1e-5)
feature = lambda kind, value: tf.train.Feature(**{kind: {"value": [value]}})
example = {"text": feature("bytes_list", b"good film"), "age": feature("float_list", 20.0)}
example = tf.train.Example(features=tf.train.Features(feature=example)).SerializeToString()
served = signatures["examples"](examples=tf.constant([example]))
np.testing.assert_allclose(served["stars"], values[:1, 0], atol=1e-5)

handler = BertModelHandler("bert_tf", "rate")
results = handler.run_inference([("good film", 20.0), "bad", ("bad", "old")], handler.load_model())
answers = [result.inference for result in results]
np.testing.assert_allclose(answers[0], ratings[0], rtol=1e-3)
assert all("must be 1 text and `age`" in refused.error for refused in answers[1:]), answers
options = ("--direct_num_workers=1", "--direct_running_mode=in_memory", "--allow_unsafe_triggers")
with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
    answered = pipeline | beam.Create(list(zip(texts, ages))) | RunInference(handler)
    lines = answered | beam.Map(lambda result: json.dumps([result.example, result.inference]))
    lines | beam.io.WriteToText("answers", shard_name_template="")
with open("answers") as file:
    answers = sorted(map(json.loads, file))
expected = sorted(map(list, zip(map(list, zip(texts, ages)), map(list, ratings))))
assert [example for example, _ in answers] == [example for example, _ in expected]
np.testing.assert_allclose([a for _, a in answers], [a for _, a in expected], rtol=1e-3)

student = bert_tf.adapt.student_from_teacher(model, num_hidden_layers=1)
student.stars.bias.assign([3.0])
distillation = bert_tf.adapt.DistillationModel(student, model, logits_weight=1.0)
distillation.compile(bert_tf.training.AdamWeightDecay(1e-2))
losses = distillation.fit(reviews, epochs=5, verbose=0).history["loss"]
assert losses[-1] < 0.7 * losses[0], losses
opened.enable_lora(2)
opened.merge_lora()
opened.quantize("int8")
np.testing.assert_allclose(opened.predict(reviews, verbose=0), values, atol=0.2)
print(json.dumps(values[:, 0].tolist()))
"""


def files_of_the_guide() -> dict[str, str]:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```python file=(\S+)\n(.*?)```", text, re.DOTALL))
    assert sorted(files) == sorted(["conformance.py", *FILES])
    assert sum(len(content.splitlines()) for content in files.values()) <= 220
    return files


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with the package of CONTRIBUTING.md."""
    root = tmp_path_factory.mktemp("outside")
    (root / "review_stars").mkdir()
    files = files_of_the_guide()
    for name in FILES:
        (root / "review_stars" / name).write_text(files[name], encoding="utf-8")
    return root


@pytest.mark.full
def test_a_task_of_another_package(package, tmp_path, monkeypatch):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(package)])}
    result = run_program("-c", PROGRAM, env=environment, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    expected = json.loads(result.stdout.splitlines()[-1])
    with ServerProcess(tmp_path / "served") as server:
        rows = [{"text": "good film", "age": 20}, {"text": "bad film .", "age": 70.0}]
        status, answer = server.json("POST", "/v1/models/tiny:predict", {"instances": rows})
    assert status == 200, answer
    received = [row["stars"] for row in answer["predictions"]]
    assert received == pytest.approx(expected[:2], abs=1e-3)

    # Programs know the task by `--import_modules`: the server, of a directory that is not exported,
    # and Beam's, whose corpus has a column of ages.
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    known = "--import_modules=review_stars"
    with ServerProcess(tmp_path / "bert_tf", known, is_real_start=True) as server:
        status, answer = server.json("POST", "/v1/models/tiny:predict", {"instances": rows})
    assert status == 200, answer
    received = [row["stars"] for row in answer["predictions"]]
    assert received == pytest.approx(expected[:2], abs=1e-3)
    for name, lines in {
        "corpus.jsonl": map(json.dumps, rows),
        "corpus.csv": ["text,age", "good film,20", "bad film .,70.0"],
    }.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        options = {"model_dir": "bert_tf", "input_file": name, "output_file": "stars"}
        options |= {"direct_num_workers": 1, "num_shards": 1}
        arguments = [f"--{option}={value}" for option, value in options.items()]
        program = ("-m", "bert_tf.tools.beam_predict", known, *arguments)
        result = run_program(*program, env=environment, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        answers = (tmp_path / "stars-00000-of-00001.jsonl").read_text().splitlines()
        received = [json.loads(line)["answer"]["stars"] for line in answers]
        assert received == pytest.approx(expected[:2], abs=1e-3)


@pytest.fixture
def tree(tmp_path):
    """A copy of bert_tf and its tests with the same package as a task of ours."""
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("bert_tf", "tests"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    files = files_of_the_guide()
    tests = tmp_path / "tests" / "tasks" / "review_stars"
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "conformance.py").write_text(files["conformance.py"], encoding="utf-8")
    folder = tmp_path / "bert_tf" / "tasks" / "review_stars"
    folder.mkdir()
    for name in FILES:
        content = files[name].replace("from review_stars", "from bert_tf.tasks.review_stars")
        for left_out in (
            "import bert_tf\n",
            "    module=__name__,\n",
            "bert_tf.register_task(SPEC)\n",
        ):
            content = content.replace(left_out, "")
        (folder / name).write_text(content, encoding="utf-8")
    registry = folder.parent / "__init__.py"
    content = registry.read_text(encoding="utf-8")
    line = '    "review_stars",\n)'
    changed = re.sub(r"(NAMES = \(.*?)\)", rf"\1{line}", content, count=1, flags=re.DOTALL)
    registry.write_text(changed, encoding="utf-8")
    return tmp_path


@pytest.mark.full
def test_what_every_task_must_do(tree):
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    tests = ("--ignore=tests/conformance/test_ops.py", "-k", "review and stars", "-m", "")
    arguments = ("pytest", "-q", "tests/conformance", *tests)
    result = run_program("-m", *arguments, env=environment, cwd=tree, timeout=600)
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) > 15
