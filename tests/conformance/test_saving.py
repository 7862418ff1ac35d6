"""Every task: files that hold it, and bring it back."""

import json
import pathlib
import re
import zipfile

import keras
import numpy as np
import pytest

from bert_tf.errors import ConfigError, UserError
from bert_tf.training import AdamWeightDecay
from tests.conformance.task import ONE_BLOCK, VOCABULARY, WEIGHTS, assert_same, make, shared
from tests.conformance.tasks import TASKS, tasks


def configuration(model, own_format):
    """A model's configuration without the names that Keras gives."""
    config = model.get_config()
    backbone = config.pop("backbone")["config"]
    del config["name"], backbone["name"]
    if own_format:  # the others give the configurations of networks more keys
        config["backbone"] = backbone
    else:
        config.get("decoder_config", {}).pop("extra", None)
    return config


def assert_same_model(opened, model, task, own_format=True):
    """The same class, options, tokenizer and weights, so the same outputs."""
    assert type(opened) is type(model)
    assert configuration(opened, own_format) == configuration(model, own_format)
    for mine, theirs in zip(opened.weights, model.weights, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy(), err_msg=theirs.path)
    assert_same(opened(task.features), model(task.features), 0.0)


@tasks()
def test_keras_file(name, tmp_path):
    """The model, and where it trains the optimizer too: it goes on as if it had not stopped."""
    task = TASKS[name]
    # Keras's files do not hold the state of dropout.
    options = {key: value for key, value in task.saved.items() if key != "dropout"}
    model = make(task, config=ONE_BLOCK, **options)
    trains = "training" not in task.lacks
    if trains and "objective" not in task.compiled:
        model.compile(AdamWeightDecay(1e-2), run_eagerly=True, **task.compiled)
        model.train_on_batch(task.features, task.targets, WEIGHTS)
    model.save(tmp_path / "model.keras")
    opened = keras.models.load_model(tmp_path / "model.keras")
    assert_same_model(opened, model, task)
    if trains and "objective" not in task.compiled:
        assert int(opened.optimizer.iterations) == 1
        for one in (model, opened):
            one.train_on_batch(task.features, task.targets, WEIGHTS)
        for mine, theirs in zip(opened.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@tasks(few=True)
def test_weights_file(name, tmp_path):
    task, model = TASKS[name], shared(TASKS[name], saved=True)
    model.save_weights(tmp_path / "model.weights.h5")
    other = make(task, seed=2, **task.saved)
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same_model(other, model, task)


@pytest.mark.parametrize("format", ["huggingface", "tf1", "bert_tf"])
@tasks()
def test_save_pretrained(name, format, tmp_path):
    task, model = TASKS[name], shared(TASKS[name], saved=True)
    if format != "bert_tf" and "other formats" in task.lacks:
        with pytest.raises(UserError, match=task.lacks["other formats"].error):
            model.save_pretrained(tmp_path, format=format)
        return
    model.save_pretrained(tmp_path, format=format)
    opened = task.kind.from_pretrained(tmp_path)
    assert opened.untrained_heads == ()
    assert_same_model(opened, model, task, own_format=format == "bert_tf")
    if "text" not in task.lacks and format == "huggingface":
        opened.run_eagerly = True
        expected = task.answers(model, task.question)
        assert_same(task.answers(opened, task.question), expected)


KERAS_ARGUMENTS = {
    "name": "other",
    "dtype": "float16",
    "trainable": False,
    "autocast": False,
    "activity_regularizer": "l2",
}


@pytest.mark.parametrize("format", ["huggingface", "bert_tf"])
@tasks(few=True)
def test_a_file_sets_no_arguments_of_keras(name, format, tmp_path):
    task, model = TASKS[name], shared(TASKS[name], saved=True)
    if format != "bert_tf" and "other formats" in task.lacks:
        return
    model.save_pretrained(tmp_path, format=format)
    path = tmp_path / {"huggingface": "config.json", "bert_tf": "bert_tf.json"}[format]
    for argument, value in KERAS_ARGUMENTS.items():
        content = json.loads(path.read_text())
        options = (content["bert_tf"] if format == "huggingface" else content)["options"]
        options[argument] = value
        (tmp_path / path.name).write_text(json.dumps(content))
        with pytest.raises(UserError, match=rf"options.{argument}` in .* must be absent"):
            task.kind.from_pretrained(tmp_path)
        del options[argument]
        path.write_text(json.dumps(content))


@tasks(few=True)
def test_a_keras_file_sets_no_arguments_of_keras(name, tmp_path):
    """But those that Keras writes, of which bert_tf's reader uses none."""
    task, model = TASKS[name], shared(TASKS[name], saved=True)
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        files = {file: archive.read(file) for file in archive.namelist()}
    content = json.loads(files["config.json"])

    def opened(**values):
        changed = {**content, "config": {**content["config"], **values}}
        with zipfile.ZipFile(tmp_path / "other.keras", "w") as archive:
            for file, data in files.items():
                archive.writestr(file, json.dumps(changed) if file == "config.json" else data)
        return task.kind.from_pretrained(tmp_path / "other.keras")

    assert opened(name="other", dtype="float16").dtype_policy == model.dtype_policy
    for argument in ("trainable", "autocast", "activity_regularizer"):
        with pytest.raises(ConfigError, match=rf"config.{argument}` in .* must be absent"):
            opened(**{argument: KERAS_ARGUMENTS[argument]})


@tasks(few=True)
def test_cased_checkpoint_that_does_not_say_so(name, tmp_path):
    """A published TF1 directory: what the error says works."""
    task = TASKS[name]
    if "text" in task.lacks:
        return
    shared(task, saved=True).backbone.save_pretrained(tmp_path, format="tf1")
    pieces = [piece.upper() if len(piece) == 1 else piece for piece in VOCABULARY]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    options = {**task.options, **task.saved}
    with pytest.raises(ConfigError, match="cased: pass lowercase=False") as error:
        task.kind.from_pretrained(tmp_path, **options)
    assert not task.kind.from_pretrained(tmp_path, lowercase=False, **options).tokenizer.lowercase
    content, path = re.search(r"or write (\{.*\}) into (\S+),", str(error.value)).groups()
    pathlib.Path(path).write_text(content)
    tokenizer = task.kind.from_pretrained(tmp_path, **options).tokenizer
    assert (tokenizer.lowercase, tokenizer.max_input_chars_per_word) == (False, 200)
