"""Models in LIT: checked by LIT's own validation, and explained by LIT's own components."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertMaskedLM, BertTextClassifier, BertTokenizer
from bert_tf.config import MULTI_LABEL
from bert_tf.errors import UserError
from bert_tf.inspection import BertLitModel, lit_model

TEXTS = ["good film .", "the bad abc film", "a"]
PAIRS = ["bad", "good good film", "the film ."]
KINDS = {
    "single": (BertTextClassifier, {"labels": ["no", "yes"]}, ["no", "yes", "no"]),
    "mean_max": (BertTextClassifier, {"num_classes": 3, "pooling": "mean_max"}, ["LABEL_1"] * 3),
    "several": (
        BertTextClassifier,
        {"labels": ["x", "y", "z"], "problem_type": MULTI_LABEL},
        [["x"], [], ["y", "z"]],
    ),
    "number": (BertTextClassifier, {"num_classes": 1}, [0.5, 1.0, 0.0]),
    "masked": (BertMaskedLM, {}, None),
}


@pytest.fixture(scope="module")
def make(tiny_config, tiny_vocabulary):
    """A function that makes a model whose weights are far from zero."""

    def make(kind):
        keras.utils.set_random_seed(3)
        model_class, options, _ = KINDS[kind]
        tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
        model = model_class(BertBackbone(tiny_config), tokenizer=tokenizer, **options)
        for variable in model.trainable_variables:
            variable.assign_add(keras.random.normal(variable.shape, stddev=0.2))
        return model

    return make


def dataset_of(kind, pairs=False):
    """A LIT data set of the texts, with labels where the kind of model has such."""
    dataset = pytest.importorskip("lit_nlp.api.dataset", reason="needs lit-nlp")
    from lit_nlp.api import types

    labels, options = KINDS[kind][2], KINDS[kind][1]
    rows = [{"text": text} for text in TEXTS]
    spec = {"text": types.TextSegment()}
    if pairs:
        spec["pair"] = types.TextSegment()
        rows = [{**row, "pair": pair} for row, pair in zip(rows, PAIRS)]
    if labels is not None:
        rows = [{**row, "label": label} for row, label in zip(rows, labels)]
        names = options.get("labels") or [f"LABEL_{n}" for n in range(options["num_classes"])]
        spec["label"] = {
            "several": types.SparseMultilabel(vocab=names),
            "number": types.Scalar(),
        }.get(kind, types.CategoryLabel(vocab=names))
    return dataset.Dataset(spec, rows)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_lit_accepts_it(make, kind, pairs):
    dataset = dataset_of(kind, pairs)
    from lit_nlp.api.model import Model
    from lit_nlp.lib import validation

    model = BertLitModel(make(kind), pair_name="pair" if pairs else None, batch_size=2)
    assert isinstance(model, Model) and model.is_compatible_with_dataset(dataset)
    validation.validate_dataset(dataset)
    validation.validate_model(model, dataset)
    outputs = list(model.predict(dataset.examples))
    assert len(outputs) == len(TEXTS)
    for output in outputs:
        assert set(output) == set(model.output_spec())
        length = len(output["tokens"])
        assert output["layer_1/attention"].shape == (4, length, length)
        np.testing.assert_allclose(output["layer_1/attention"].sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["single", "mean_max", "several", "number"])
def test_it_predicts_what_the_model_predicts(make, kind):
    dataset, model = dataset_of(kind, pairs=True), make(kind)
    expected = model.probabilities(model.predict((TEXTS, PAIRS), verbose=0))
    lit = BertLitModel(model, pair_name="pair")
    pooled = model.pooled((TEXTS, PAIRS))
    for output, values, vector in zip(lit.predict(dataset.examples), expected, pooled, strict=True):
        found = output["predictions"]
        if kind == "several":
            assert [name for name, _ in found] == ["x", "y", "z"]
            found = [value for _, value in found]
        np.testing.assert_allclose(found, values if kind != "number" else values[0], atol=1e-5)
        np.testing.assert_allclose(output["pooled_embedding"], vector, atol=1e-5)


def test_masked_words(make):
    dataset_of("masked")
    model = make("masked")
    (output,) = BertLitModel(model, top_k=3).predict([{"text": "good [MASK] ."}])
    assert output["tokens"] == ["[CLS]", "good", "[MASK]", ".", "[SEP]"]
    expected = [(c.piece, c.probability) for c in model.fill_mask("good [MASK] .", top_k=3)[0]]
    assert [piece for piece, _ in output["predictions"][2]] == [piece for piece, _ in expected]
    values = [value for _, value in output["predictions"][2]]
    np.testing.assert_allclose(values, [value for _, value in expected], atol=1e-5)
    # LIT masks one of the tokens that the model gave.
    tokens = [*output["tokens"][:3], "[MASK]", "[SEP]"]
    (again,) = BertLitModel(model, top_k=3).predict([{"text": "good [MASK] .", "tokens": tokens}])
    (written,) = BertLitModel(model, top_k=3).predict([{"text": "good [MASK] [MASK]"}])
    assert again["tokens"] == written["tokens"]
    for found, wanted in zip(again["predictions"], written["predictions"], strict=True):
        assert [piece for piece, _ in found] == [piece for piece, _ in wanted]


@pytest.mark.parametrize("kind", ["single", "mean_max", "several", "number"])
def test_gradients_are_those_of_a_tape(make, kind):
    """The embedding of a piece that is there once has the gradient of its token."""
    dataset_of(kind)
    model = make(kind)
    table = model.backbone.embeddings.word_embeddings.value
    outputs = list(BertLitModel(model).predict([{"text": text} for text in TEXTS]))
    for text, output in zip(TEXTS, outputs, strict=True):
        tokens = model.tokenize([text])
        with tf.GradientTape() as tape:
            logits = model(tokens)[0]
            number = int(tf.argmax(logits))
            logit = logits[number]
        gradient = tf.convert_to_tensor(tape.gradient(logit, table)).numpy()  # [V, E]
        ids = tokens["token_ids"][0].numpy()
        assert len(set(ids)) == len(ids)
        np.testing.assert_allclose(output["token_gradients"], gradient[ids], atol=1e-5)
        np.testing.assert_array_equal(output["token_embeddings"], table.numpy()[ids])
        assert np.abs(gradient[ids]).max() > 1e-3
        if "label" in output:
            assert output["label"] == model.preprocessor.names[number]


def test_gradients_are_of_the_label_of_the_example(make):
    dataset_of("single")
    lit = BertLitModel(make("single"))
    no, yes = lit.predict([{"text": TEXTS[1], "label": label} for label in ("no", "yes")])
    assert (no["label"], yes["label"]) == ("no", "yes")
    assert not np.allclose(no["token_gradients"], yes["token_gradients"])
    with pytest.raises(UserError, match="Received: 'maybe'"):
        list(lit.predict([{"text": "a", "label": "maybe"}]))


def test_word_vectors_are_an_input(make):
    dataset_of("single")
    lit = BertLitModel(make("single"))
    first, second = lit.predict([{"text": "good film ."}, {"text": "bad film ."}])
    vectors = second["token_embeddings"]
    (moved,) = lit.predict([{"text": "good film .", "token_embeddings": vectors}])
    np.testing.assert_allclose(moved["predictions"], second["predictions"], atol=1e-6)
    assert not np.allclose(moved["predictions"], first["predictions"])
    with pytest.raises(UserError, match="a vector for every token"):
        list(lit.predict([{"text": "good", "token_embeddings": vectors}]))


def test_salience_maps(make):
    """Integrated gradients sum to the difference of the logits, as their definition has it."""
    dataset = dataset_of("single")
    from lit_nlp.components import gradient_maps, hotflip

    model = make("single")
    lit = BertLitModel(model)
    for component in (gradient_maps.GradientNorm(), gradient_maps.GradientDotInput()):
        assert component.is_compatible(lit, dataset)
        (result,) = component.run(dataset.examples[:1], lit, dataset)
        assert list(result["token_gradients"].tokens) == ["[CLS]", "good", "film", ".", "[SEP]"]
    integrated = gradient_maps.IntegratedGradients(interpolation_steps=400, normalize=False)
    assert integrated.is_compatible(lit, dataset)
    example = {"text": TEXTS[1]}
    (result,) = integrated.run([example], lit, dataset)
    tokens = model.tokenize([TEXTS[1]])
    (output,) = lit.predict([example])
    number = model.labels.index(output["label"])
    vectors = output["token_embeddings"][np.newaxis]
    ends = [model({**tokens, "word_vectors": v})[0, number] for v in (vectors, 0 * vectors)]
    salience = np.sum(result["token_gradients"].salience)
    assert salience == pytest.approx(float(ends[0] - ends[1]), abs=0.02)
    assert hotflip.HotFlip().is_compatible(lit, dataset)
    pieces, table = lit.get_embedding_table()
    assert len(pieces) == len(table) == 64 and pieces[5] == "good"


def test_a_quantized_model_has_no_gradients(make):
    dataset = dataset_of("single")
    from lit_nlp.lib import validation

    model = make("single")
    model.quantize("int8")
    lit = BertLitModel(model)
    assert not {"token_gradients", "token_embeddings"} & set(lit.output_spec())
    validation.validate_model(lit, dataset)
    assert lit.get_embedding_table()[1].shape == (64, 32)


def test_lits_server_answers(make):
    dataset = dataset_of("single")
    import lit_nlp
    from lit_nlp import dev_server
    from werkzeug.test import Client

    models, datasets = {"reviews": BertLitModel(make("single"))}, {"texts": dataset}
    page = pathlib.Path(lit_nlp.__file__).parent / "client" / "build" / "default"
    app = dev_server.Server(
        models, datasets, server_type="external", client_root=str(page), warm_start=1.0
    ).serve()

    def ask(route, body=None, **query):
        response = Client(app).post(route, json=body, query_string=query)
        assert response.status_code == 200, response.text
        return response.json

    assert b"<html" in Client(app).get("/").data
    model = ask("/get_info")["models"]["reviews"]
    assert "texts" in model["datasets"]
    methods = {"Grad L2 Norm", "Grad ⋅ Input", "Integrated Gradients", "LIME"}
    assert methods <= set(model["interpreters"]) and "Hotflip" in model["generators"]
    examples = ask("/get_dataset", dataset_name="texts")
    preds = ask("/get_preds", {"inputs": examples}, model="reviews", requested_types="Tokens")
    assert preds[0] == {"tokens": ["[CLS]", "good", "film", ".", "[SEP]"]}
    query = {"model": "reviews", "dataset_name": "texts", "interpreter": "Integrated Gradients"}
    (found,) = ask("/get_interpretations", {"inputs": examples[:1]}, **query)
    assert len(found["token_gradients"]["salience"]) == 5


def test_other_models_are_refused(make):
    dataset_of("single")
    model = make("single")
    with pytest.raises(UserError, match="Received: BertBackbone"):
        BertLitModel(model.backbone)
    with pytest.raises(UserError, match="without a tokenizer"):
        BertLitModel(BertTextClassifier(model.backbone))
    with pytest.raises(UserError, match="Received: both_orders=True"):
        BertLitModel(BertTextClassifier(model.backbone, both_orders=True))
    numbers = {"num_classes": 2, "problem_type": "regression"}
    with pytest.raises(UserError, match="must predict one number .* Received: num_classes=2"):
        BertLitModel(BertTextClassifier(model.backbone, tokenizer=model.tokenizer, **numbers))


def test_without_lit_it_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "lit_nlp", None)
    monkeypatch.setitem(sys.modules, "lit_nlp.api.types", None)
    monkeypatch.setitem(sys.modules, "lit_nlp.api.model", None)
    assert lit_model._base() is object
    with pytest.raises(UserError, match=r"pip install 'bert-tf\[inspection\]'"):
        BertLitModel(make("single"))
