"""BertCrossEncoder: scores, ranks, the losses of pairs and of lists, and errors."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertCrossEncoder, BertTextClassifier, BertTokenizer
from bert_tf.errors import CheckpointError, UserError
from bert_tf.training import AdamWeightDecay

QUERIES = ["good film", "the bad", "a b c d e f g"]
DOCUMENTS = ["the good.", "film", "good"]


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary):
    return BertTokenizer(tiny_vocabulary, lowercase=False)


@pytest.fixture
def model(tiny_config, tokenizer):
    model = BertCrossEncoder(BertBackbone(tiny_config), tokenizer=tokenizer)
    model.classifier.kernel.assign(model.classifier.kernel * 50.0)
    model.run_eagerly = True  # until a test compiles it: tracing takes longer than a few texts
    return model


@pytest.fixture(scope="module")
def same_model(tiny_config, tokenizer):
    """A model for the tests of calls that are refused."""
    model = BertCrossEncoder(BertBackbone(tiny_config), tokenizer=tokenizer)
    model.compile("sgd")
    return model


def test_ranks_by_score(model):
    documents = [*DOCUMENTS, "bad", "film"]
    scores = model.score(["good film"] * 5, documents)
    ranked = model.rank("good film", documents)
    assert [d.score for d in ranked] == sorted(scores.tolist(), reverse=True)
    assert all(documents[d.index] == d.text and scores[d.index] == d.score for d in ranked)
    equal = [d.index for d in ranked if d.text == "film"]
    assert equal == [1, 4]
    assert model.rank("good film", documents, top_k=2) == ranked[:2]
    assert model.rank("good film", documents, top_k=9) == ranked
    assert model.rank("good film", []) == []
    assert abs(model.score("good film", documents[0]) - scores[0]) < 1e-6


def test_the_activation_makes_scores_of_logits(model, tiny_config, tokenizer):
    logits = model.predict((QUERIES, DOCUMENTS), verbose=0)[:, 0]
    expected = 1 / (1 + np.exp(-logits.astype(np.float64)))
    np.testing.assert_allclose(model.score(QUERIES, DOCUMENTS), expected, atol=1e-6)
    plain = BertCrossEncoder(model.backbone, activation="identity", tokenizer=tokenizer)
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(plain.score(QUERIES, DOCUMENTS), logits, atol=1e-6)


def test_learns_which_document_fits(model):
    queries, fits, others = ["the film", "a b"] * 100, ["good"] * 200, ["bad", "film"] * 100
    model.compile(AdamWeightDecay(3e-3))
    model.fit((queries, fits, others), batch_size=8, epochs=3, verbose=0)
    for query in ("the film", "a b"):
        ranked = model.rank(query, ["bad", "good", "film"])
        assert ranked[0].text == "good" and ranked[0].score > ranked[1].score + 0.1


def test_the_losses(model):
    model.compile("sgd", run_eagerly=True)
    logits = model.predict((QUERIES, DOCUMENTS), verbose=0)[:, 0].astype(np.float64)
    labels = np.array([1.0, 0.0, 0.3])
    expected = np.mean(np.log1p(np.exp(logits)) - labels * logits)
    received = model.evaluate((QUERIES, DOCUMENTS), labels, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(received, expected, rtol=1e-5)

    others = DOCUMENTS[::-1]
    lists = (QUERIES, DOCUMENTS, others, DOCUMENTS[1:] + DOCUMENTS[:1])
    logits = model.predict(lists, verbose=0).astype(np.float64)
    assert logits.shape == (3, 3)
    pairs = model.predict((QUERIES, others), verbose=0)
    np.testing.assert_allclose(logits[:, 1], pairs[:, 0], atol=1e-5)
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[:, 0])
    rows = [list(row) for row in zip(*lists[1:])]
    for examples in (lists, (QUERIES, rows), list(zip(QUERIES, rows))):
        received = model.evaluate(examples, verbose=0, return_dict=True)["loss"]
        np.testing.assert_allclose(received, expected, rtol=1e-5)

    model.compile("sgd", loss="mse", run_eagerly=True)
    received = model.evaluate((QUERIES, DOCUMENTS), labels, verbose=0, return_dict=True)["loss"]
    logits = model.predict((QUERIES, DOCUMENTS), verbose=0)[:, 0]
    np.testing.assert_allclose(received, np.mean((logits - labels) ** 2), rtol=1e-5)


def test_texts_in_the_graph_are_lists_too(model):
    strings = tuple(map(tf.constant, (QUERIES, DOCUMENTS, DOCUMENTS[::-1])))
    np.testing.assert_allclose(
        model(strings), model.predict((QUERIES, DOCUMENTS, DOCUMENTS[::-1]), verbose=0), atol=1e-5
    )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda model: model.predict(QUERIES, verbose=0), "a query with one document or more"),
        (lambda model: model.rank(QUERIES, DOCUMENTS), "`query` must be a string"),
        (lambda model: model.rank("good", "bad"), "`documents` a list"),
        (lambda model: model.rank("good", DOCUMENTS, top_k=0), "`top_k` must be"),
        (lambda model: model.score(QUERIES, DOCUMENTS[:2]), "same number of rows"),
        (
            lambda model: model.fit((QUERIES, DOCUMENTS, DOCUMENTS), [1, 0, 0], verbose=0),
            "`y` must be None for queries with several documents",
        ),
        (lambda model: BertCrossEncoder(model.backbone, activation="tanh"), "`activation` must"),
    ],
)
def test_what_has_no_meaning_is_refused(same_model, call, message):
    with pytest.raises(UserError, match=message):
        call(same_model)


@pytest.mark.parametrize("activation", ["sigmoid", "identity"])
def test_directories_of_sentence_transformers(model, activation, tmp_path):
    model = BertCrossEncoder(model.backbone, activation=activation, tokenizer=model.tokenizer)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert len(config["id2label"]) == 1
    del config["bert_tf"]  # as sentence-transformers writes it
    (tmp_path / "config.json").write_text(json.dumps(config))
    opened = BertCrossEncoder.from_pretrained(tmp_path)
    assert opened.activation == activation and not opened.untrained_heads
    np.testing.assert_allclose(
        opened.score(QUERIES, DOCUMENTS), model.score(QUERIES, DOCUMENTS), atol=1e-6
    )


def test_a_classifier_of_two_classes_is_no_cross_encoder(tiny_config, tmp_path):
    BertTextClassifier(BertBackbone(tiny_config), num_classes=2).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"expected shape \[1, 32\]"):
        BertCrossEncoder.from_pretrained(tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("activation", ["sigmoid", "identity"])
def test_scores_are_those_of_sentence_transformers(model, activation, tmp_path):
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="needs sentence-transformers"
    )
    model = BertCrossEncoder(model.backbone, activation=activation, tokenizer=model.tokenizer)
    model.save_pretrained(tmp_path / "ours")
    theirs = sentence_transformers.CrossEncoder(str(tmp_path / "ours"), device="cpu")
    expected = theirs.predict(list(zip(QUERIES, DOCUMENTS)))
    np.testing.assert_allclose(model.score(QUERIES, DOCUMENTS), expected, atol=1e-5)
    ranked = [(d["corpus_id"], d["score"]) for d in theirs.rank("good film", DOCUMENTS)]
    received = [(d.index, d.score) for d in model.rank("good film", DOCUMENTS)]
    assert [d[0] for d in received] == [d[0] for d in ranked]
    theirs.save_pretrained(str(tmp_path / "theirs"))
    opened = BertCrossEncoder.from_pretrained(tmp_path / "theirs")
    assert opened.activation == activation
    np.testing.assert_allclose(opened.score(QUERIES, DOCUMENTS), expected, atol=1e-5)
