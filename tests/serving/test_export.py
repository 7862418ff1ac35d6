"""SavedModels: stock operations only where promised, and the model's own numbers."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf import BertBackbone, BertPretrainer, BertTextClassifier, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.models import serving_module as serving_signatures
from bert_tf.serving import export
from bert_tf.serving.export import serving_module
from tests.serving.operations import operations

TEXTS = ["the good film.", "bad", "", "good " * 100]


@pytest.fixture(scope="module")
def classifier(tiny_config, tiny_vocabulary):
    return BertTextClassifier(
        BertBackbone(tiny_config),
        labels=["bad", "good"],
        pooling="mean",
        tokenizer=BertTokenizer(tiny_vocabulary),
        max_length=20,
    )


def test_text_and_tokens_give_the_models_numbers(classifier, tmp_path):
    path = pathlib.Path(classifier.export(tmp_path, version=3))
    assert path == tmp_path / "3"
    assert not any(name.startswith("BertTf>") for name in operations(path))
    expected = classifier.predict(TEXTS, verbose=0)
    signatures = tf.saved_model.load(path).signatures
    from_text = signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(from_text["logits"], expected, atol=1e-5)
    np.testing.assert_allclose(from_text["probabilities"].numpy().sum(axis=1), 1.0, atol=1e-6)
    labels = [label.decode() for label in from_text["label"].numpy()]
    assert labels == [("bad", "good")[row] for row in expected.argmax(axis=1)]
    from_tokens = signatures["tokens"](**classifier.tokenize(TEXTS))
    np.testing.assert_allclose(from_tokens["logits"], expected, atol=1e-5)


@pytest.mark.parametrize("portable", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_quantized_model_stays_small(
    tiny_config, tiny_vocabulary, tmp_path, portable, monkeypatch
):
    monkeypatch.setattr(serving_signatures, "LEAST_VARIABLE_BYTES", 0)
    quantized = BertTextClassifier(
        BertBackbone(tiny_config), labels=["bad", "good"], tokenizer=BertTokenizer(tiny_vocabulary)
    )
    quantized.quantize("int8")
    path = pathlib.Path(export(quantized, tmp_path, portable=portable))
    assert any(name.startswith("BertTf>") for name in operations(path)) != portable
    assert ("BertTf>QuantizedDense" in operations(path)) != portable
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    types = {name: reader.get_variable_to_dtype_map()[name] for name in shapes}
    integers = sum(int(np.prod(shape)) for name, shape in shapes.items() if types[name] == tf.int8)
    kernels = tiny_config.num_hidden_layers * (
        4 * tiny_config.hidden_size**2 + 2 * tiny_config.hidden_size * tiny_config.intermediate_size
    )
    assert integers >= kernels + tiny_config.vocab_size * tiny_config.hidden_size
    square = [tiny_config.hidden_size] * 2  # the pooler's kernel is the only one left
    assert [s for name, s in shapes.items() if types[name] == tf.float32].count(square) == 1
    served = tf.saved_model.load(path).signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(
        served["logits"], quantized.predict(TEXTS, verbose=0), atol=1e-2 if portable else 1e-5
    )


def test_small_weights_are_constants(classifier, tmp_path, monkeypatch):
    hidden_size = classifier.backbone.config.hidden_size
    largest_vector = 4 * max(hidden_size * 3, classifier.backbone.config.intermediate_size)
    monkeypatch.setattr(serving_signatures, "LEAST_VARIABLE_BYTES", largest_vector + 1)
    loaded = tf.saved_model.load(export(classifier, tmp_path))
    signature = loaded.signatures["serving_default"]
    shapes = [tuple(variable.shape) for variable in signature.variables]
    assert (hidden_size, hidden_size) in shapes
    assert all(len(shape) > 1 for shape in shapes if shape)
    np.testing.assert_allclose(
        signature(text=tf.constant(TEXTS))["logits"],
        classifier.predict(TEXTS, verbose=0),
        atol=1e-5,
    )


def test_branches_of_conditions_stay_functions(classifier, tmp_path):
    saved_model = saved_model_pb2.SavedModel()
    path = pathlib.Path(export(classifier, tmp_path)) / "saved_model.pb"
    saved_model.ParseFromString(path.read_bytes())
    functions = saved_model.meta_graphs[0].graph_def.library.function
    conditions = [node for one in functions for node in one.node_def if node.op.endswith("If")]
    assert conditions
    assert not any(node.attr["_lower_using_switch_merge"].b for node in conditions)


def test_an_older_version_is_replaced_whole_where_it_is_named(classifier, tmp_path):
    (tmp_path / "9").mkdir()
    (tmp_path / "notes").mkdir()
    export(classifier, tmp_path)
    (tmp_path / "10" / "stale").write_text("")
    export(classifier, tmp_path, version=10)
    assert not (tmp_path / "10" / "stale").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "9", "notes"]


def test_several_labels_and_numbers(tiny_config, tiny_vocabulary):
    def serve(**options):
        model = BertTextClassifier(
            BertBackbone(tiny_config), tokenizer=BertTokenizer(tiny_vocabulary), **options
        )
        return model, serving_module(model).of_tokens(model.tokenize(TEXTS[:2]))

    model, outputs = serve(labels=["a", "b", "c"], problem_type="multi_label_classification")
    assert outputs["labels"].numpy().tolist() == [[b"a", b"b", b"c"]] * 2
    expected = model.probabilities(outputs["logits"])
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)
    _, outputs = serve(num_classes=1)
    assert sorted(outputs) == ["logits", "score"] and outputs["score"].shape == (2, 1)


def test_without_tokenizer(tiny_config, tmp_path):
    with pytest.raises(UserError, match="tokenizer"):
        export(BertTextClassifier(BertBackbone(tiny_config)), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("fake_jieba")
def test_with_a_segmenter(tiny_config, tiny_vocabulary, tmp_path):
    """The error names a way to serve the network on token ids, which works."""
    words = {"[unused0]": "今天", "[unused1]": "今"}
    tokenizer = BertTokenizer(
        [words.get(piece, piece) for piece in tiny_vocabulary], segmenter="jieba"
    )
    model = BertTextClassifier(BertBackbone(tiny_config), num_classes=2, tokenizer=tokenizer)
    with pytest.raises(UserError, match="must have no segmenter.*the signature `tokens`"):
        model.export(tmp_path)
    assert not list(tmp_path.iterdir())
    model.tokenizer = BertTokenizer.from_config(model.tokenizer.get_config() | {"segmenter": None})
    tokens = tokenizer(["今天", "a film"])
    served = tf.saved_model.load(model.export(tmp_path)).signatures["tokens"](**tokens)
    np.testing.assert_allclose(served["logits"], model(tokens), atol=1e-6)
    model.tokenizer = tokenizer
    assert tokens["token_ids"][0, 1] == tokenizer.token_to_id("今天")
    np.testing.assert_allclose(model.predict(["今天", "a film"]), served["logits"], atol=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"format": "onnx"}, "format='onnx'"),
        ({"input_signature": [tf.TensorSpec([None], tf.string)]}, "`input_signature` must be None"),
        ({"opset_version": 17}, "Received: opset_version"),
    ],
)
def test_arguments_of_keras(classifier, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        classifier.export(tmp_path, **options)


def test_a_pretrainer_is_not_exported(tiny_config, tmp_path):
    with pytest.raises(UserError, match="Received: BertPretrainer"):
        BertPretrainer(BertBackbone(tiny_config)).export(tmp_path)
