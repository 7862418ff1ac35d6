"""LiteRT files: the model's numbers in `ai-edge-litert`, and the files next to them."""

import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.errors import ConfigError, UserError
from bert_tf.families.network_families import FAMILIES
from bert_tf.serving import export_litert, litert
from bert_tf.serving.litert import write_tokenizer_and_labels
from tests.checkpoints.test_families import random_model
from tests.conformance.task import make
from tests.conformance.tasks import TASKS

interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="needs ai-edge-litert")

TEXTS = ["the good film.", "bad"]
QUICK_TASKS = ("token classification",)
QUICK_FAMILIES = ("deberta-v2",)
NOT_EXPORTED = {
    "multiple choice": "must have one sequence per example",
    "late interaction": "must have one sequence per example",
    "encoder-decoder": "needs EnsureShape",
    "prefix LM": "needs EnsureShape",
}


@pytest.fixture
def classifier(tiny_config, tiny_vocabulary):
    return BertTextClassifier(
        BertBackbone(tiny_config), labels=["bad", "good"], tokenizer=BertTokenizer(tiny_vocabulary)
    )


def test_the_file_gives_the_models_numbers(classifier, tmp_path):
    path = tmp_path / "phone" / "reviews.tflite"
    assert export_litert(classifier, path, (8, 16), batch_size=2, verify=True) < 1e-5
    assert sorted(file.name for file in path.parent.iterdir()) == [
        *("labels.txt", "reviews.tflite", "tokenizer.json")
    ]
    assert (path.parent / "labels.txt").read_text() == "bad\ngood\n"
    opened = interpreter.Interpreter(model_path=str(path))
    assert sorted(opened.get_signature_list()) == ["tokens_16", "tokens_8"]
    assert not {one["op_name"] for one in opened._get_ops_details()} & {"CUSTOM"}
    expected = classifier.predict(TEXTS, verbose=0)
    for length in (8, 16):
        tokens = classifier.tokenizer(TEXTS, max_length=length, padding="max_length")
        run = opened.get_signature_runner(f"tokens_{length}")
        outputs = run(**{name: values.numpy() for name, values in tokens.items()})
        assert sorted(outputs) == ["logits", "probabilities"]
        np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)


def test_smaller_weights(classifier, tmp_path):
    """float16 holds these weights exactly. int8 misses what the model's own int8 misses.

    Both round weights and the inputs of matmuls to 8 bits, by columns and by rows.
    """
    classifier.set_weights([weight.astype(np.float16) for weight in classifier.get_weights()])
    errors, sizes = {}, {}
    for quantize in ("none", "float16", "int8"):
        path = tmp_path / f"{quantize}.tflite"
        errors[quantize] = export_litert(classifier, path, 16, quantize=quantize, verify=True)
        sizes[quantize] = path.stat().st_size
    weights = 4 * sum(int(np.prod(weight.shape)) for weight in classifier.weights)
    assert sizes["float16"] < sizes["none"] - 0.4 * weights
    assert sizes["int8"] < sizes["float16"] - 0.1 * weights
    tokens = {"token_ids": np.random.default_rng(1).integers(5, 64, (64, 16)).astype(np.int32)}
    expected = np.asarray(classifier(tokens))
    classifier.quantize("int8")
    missed = np.abs(np.asarray(classifier(tokens)) - expected).max()
    assert errors["none"] < 1e-5 and errors["float16"] < 1e-5
    assert errors["int8"] < 2 * missed


def cases(names, quick):
    return [pytest.param(n, marks=() if n in quick else pytest.mark.full) for n in names]


SERVED = [n for n, task in TASKS.items() if "serving" not in task.lacks and not task.is_variant]


@pytest.mark.parametrize("name", cases([n for n in SERVED if n not in NOT_EXPORTED], QUICK_TASKS))
def test_tasks(name, tmp_path):
    assert export_litert(make(TASKS[name]), tmp_path / "model.tflite", 16, verify=True) < 1e-5


@pytest.mark.parametrize("name", cases(NOT_EXPORTED, ("multiple choice",)))
def test_tasks_that_are_not_exported(name, tmp_path):
    with pytest.raises(UserError, match=NOT_EXPORTED[name]):
        export_litert(make(TASKS[name]), tmp_path / "model.tflite", 16)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", cases(sorted({*FAMILIES} - {"bert", "bert-generation"}), QUICK_FAMILIES)
)
def test_families(name, tmp_path):
    model = random_model(name)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    size = model.backbone.config.vocab_size
    model.tokenizer = BertTokenizer([*special, *map(str, range(size - len(special)))])
    assert export_litert(model, tmp_path / "model.tflite", 16, verify=True) < 1e-5
    opened = interpreter.Interpreter(model_path=str(tmp_path / "model.tflite"))
    inputs = set(opened.get_signature_runner().get_input_details())
    has_segments = model.backbone.config.type_vocab_size > 1
    assert inputs == {"token_ids", "padding_mask"} | ({"segment_ids"} if has_segments else set())


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"lengths": ()}, ConfigError, "must be from 2 to"),
        ({"lengths": (8, 1000)}, ConfigError, "number of positions.*1000"),
        ({"batch_size": 0}, ConfigError, "must be positive"),
        ({"quantize": "int4"}, ConfigError, "must be one of"),
    ],
)
def test_bad_arguments(classifier, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        export_litert(classifier, tmp_path / "model.tflite", **{"lengths": 16, **options})
    assert not list(tmp_path.iterdir())


def test_a_file_with_other_numbers_is_not_written(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(litert, "_MOST", -1.0)
    with pytest.raises(UserError, match="must differ by at most .* No file was written"):
        export_litert(classifier, tmp_path / "model.tflite", 16, verify=True)
    assert not list(tmp_path.iterdir())


def test_a_quantized_model_is_refused(classifier, tmp_path):
    classifier.quantize("int8")
    with pytest.raises(UserError, match="Export the original model with quantize='int8'"):
        export_litert(classifier, tmp_path / "model.tflite", 16)


def test_the_files_of_another_model_are_kept(classifier, tmp_path):
    (tmp_path / "labels.txt").write_text("ham\nspam\n")
    with pytest.raises(UserError, match="no labels.txt of another model.*directory of its own"):
        export_litert(classifier, tmp_path / "model.tflite", 16)
    assert [file.name for file in tmp_path.iterdir()] == ["labels.txt"]


def test_labels_with_line_breaks(classifier, tmp_path):
    for label in ("a\nb", "a\r"):
        with pytest.raises(UserError, match="`labels` must have no line breaks"):
            write_tokenizer_and_labels(classifier.tokenizer, ["bad", label], tmp_path, tmp_path)


def test_a_tokenizer_without_tokenizer_json(classifier, tmp_path, caplog):
    config = classifier.tokenizer.get_config()
    classifier.tokenizer = BertTokenizer.from_config({**config, "number_token": "[UNK]"})
    export_litert(classifier, tmp_path / "model.tflite", 16)
    assert not (tmp_path / "tokenizer.json").exists()
    assert "No tokenizer.json is written: `number_token` must be None" in caplog.text
