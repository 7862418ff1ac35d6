"""BertSparseEncoder: vectors, terms, training, directories of sentence-transformers, errors."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

import bert_tf
from bert_tf import BertBackbone, BertMaskedLM, BertSparseEncoder, BertTokenizer
from bert_tf.checkpoints.conversion import servable_class
from bert_tf.errors import CheckpointError, UserError
from bert_tf.families.network_families import FAMILIES
from bert_tf.tasks.sparse_embedding import SpladeLoss, WeightedTerm
from bert_tf.tasks.sparse_embedding import model as model_module
from bert_tf.tasks.sparse_embedding.model import SparseEmbeddingModule
from bert_tf.training import (
    AdamWeightDecay,
    CachedMultipleNegativesRankingLoss,
    MarginMSELoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from tests.checkpoints.module_folders import move_encoder

TEXTS = ["good film", "the bad", "a b c d e f g", "film", "the good the bad."]
QUERIES, DOCUMENTS, OTHERS = TEXTS[:3], ["the good.", "film", "good"], ["bad", "a", "the b"]


def test_negatives_as_columns_and_as_lists(make):
    lists = [list(pair) for pair in zip(OTHERS, OTHERS[::-1])]
    margins = np.random.default_rng(0).normal(size=[3, 2])
    for loss, labels in ((None, None), (MarginMSELoss(), margins)):
        model = make()
        model.compile("sgd", objective=SpladeLoss(loss), run_eagerly=True)
        found = [
            model.evaluate((QUERIES, DOCUMENTS, *others), labels, verbose=0)
            for others in ((OTHERS, OTHERS[::-1]), (lists,))
        ]
        assert str(found[0]) == str(found[1])
    with pytest.raises(UserError, match="`loss` of SpladeLoss must compare a query with doc"):
        SpladeLoss("batch_hard_triplet")


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary):
    return BertTokenizer(tiny_vocabulary, lowercase=False)


@pytest.fixture(scope="module")
def make(tiny_config, tokenizer):
    def make(config=tiny_config, **options):
        keras.utils.set_random_seed(3)
        model = BertSparseEncoder(BertBackbone(config), tokenizer=tokenizer, **options)
        model.run_eagerly = True  # until a test compiles it: tracing takes longer than a few texts
        bias = np.random.default_rng(0).normal(-0.3, 0.5, config.vocab_size)
        model.masked_lm_head.output_bias.assign(bias)
        return model

    return make


@pytest.fixture(scope="module")
def same_model(make):
    """A model for the tests that compare none of its numbers."""
    return make()


def by_hand(logits, pooling, activation):
    weights = np.log1p(np.maximum(logits, 0.0))
    weights = np.log1p(weights) if activation == "log1p_relu" else weights
    return weights.max(axis=0) if pooling == "max" else weights.sum(axis=0)


@pytest.mark.parametrize("pooling, activation", [("max", "log1p_relu"), ("sum", "relu")])
def test_vectors_are_pooled_logits(make, tmp_path, monkeypatch, pooling, activation):
    """Of the masked language model with the same weights, over the tokens of each text alone."""
    model = make(pooling=pooling, activation=activation)
    model.save_pretrained(tmp_path)
    language_model = BertMaskedLM.from_pretrained(tmp_path)
    tokens = [language_model.tokenize([text]) for text in TEXTS]
    expected = [by_hand(language_model(t)[0].numpy(), pooling, activation) for t in tokens]
    vectors = model.encode(TEXTS)
    np.testing.assert_allclose(vectors.toarray(), expected, atol=1e-5)
    assert 0 < vectors.nnz < np.size(expected)
    features = model.tokenize(TEXTS)
    np.testing.assert_allclose(model(features), expected, atol=1e-5)
    np.testing.assert_allclose(model(features, training=False), expected, atol=1e-5)
    monkeypatch.setattr(model_module, "ROWS_AT_ONCE", 3)  # parts end inside of texts
    np.testing.assert_allclose(model(features), expected, atol=1e-5)


def test_encode(make, monkeypatch):
    model = make(prompts={"query": "the "}, max_active_dims=20)
    vectors = model.encode(TEXTS, max_active_dims=64)
    assert isinstance(vectors, scipy.sparse.csr_array) and vectors.dtype == np.float32
    assert vectors.shape == (5, 64) == (5, model.vector_size)
    dense = model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(vectors.toarray(), dense, atol=1e-6)
    few = model.encode(TEXTS, max_active_dims=3).toarray()
    best = np.sort(dense, axis=1)[:, -3:]
    np.testing.assert_allclose(np.sort(few, axis=1)[:, -3:], best, atol=1e-6)
    assert (np.count_nonzero(few, axis=1) == 3).all()
    limited = np.count_nonzero(model.encode(TEXTS).toarray(), axis=1)
    np.testing.assert_array_equal(limited, np.minimum(np.count_nonzero(dense, axis=1), 20))
    one = model.encode("film")
    assert one.shape == (1, 64)
    np.testing.assert_allclose(one.toarray(), model.encode(["film"]).toarray(), atol=1e-6)
    assert model.encode([]).shape == (0, 64)
    prompted = model.encode(["film"], prompt_name="query").toarray()
    np.testing.assert_allclose(prompted, model.encode(["the film"]).toarray(), atol=1e-6)
    monkeypatch.setattr(model_module, "TEXTS_ENCODED_AT_ONCE", 2)
    np.testing.assert_allclose(model.encode(TEXTS, max_active_dims=64).toarray(), dense, atol=1e-6)


def test_windows_of_a_long_text_cover_it(make):
    model = make(max_length=6)
    vector = model.encode(["a b c d e f g h"], window_stride=4).toarray()[0]
    windows = model.encode(["a b c d", "e f g h"]).toarray()
    np.testing.assert_allclose(vector, windows.max(axis=0), atol=1e-6)


def test_terms(make, tiny_vocabulary):
    model = make()
    vectors = model.encode(TEXTS)
    terms = model.decode(vectors)
    for row, dense in zip(terms, vectors.toarray()):
        assert [term.weight for term in row] == sorted(dense[dense > 0], reverse=True)
        assert all(dense[tiny_vocabulary.index(term.piece)] == term.weight for term in row)
    assert model.decode(vectors, top_k=2) == [row[:2] for row in terms]
    assert model.decode(vectors.toarray()) == terms
    assert model.decode(vectors.toarray()[1], top_k=1) == terms[1][:1]
    assert model.decode(vectors[1]) == terms[1]  # a sparse vector [V]
    assert model.decode(vectors.toarray().tolist()) == terms
    assert model.decode(np.zeros([1, 64])) == [[]]
    equal = np.zeros(64)
    equal[[9, 6, 7]] = [1.0, 1.0, 2.0]
    expected = [(tiny_vocabulary[i], w) for i, w in [(7, 2.0), (6, 1.0), (9, 1.0)]]
    assert model.decode(equal) == [WeightedTerm(*term) for term in expected]
    assert [row[0] for row in model.predict_decoded(TEXTS)] == [row[0] for row in terms]
    assert model.predict_decoded(TEXTS[0])[0].piece == terms[0][0].piece


def test_served_terms_are_bounded(make):
    model = make(max_active_dims=3, prompts={"query": "the "}, default_prompt_name="query")
    served = {k: v.numpy() for k, v in SparseEmbeddingModule(model).of_text(TEXTS).items()}
    assert served["term_count"].tolist() == [3] * len(TEXTS)
    for row, terms in enumerate(model.decode(model.encode(TEXTS))):
        assert [piece.decode() for piece in served["term"][row]] == [t.piece for t in terms]
        np.testing.assert_allclose(served["term_weight"][row], [t.weight for t in terms], atol=1e-6)
    model.masked_lm_head.output_bias.assign(np.full(64, -99.0))  # no term at all
    served = SparseEmbeddingModule(model).of_text(TEXTS)
    assert served["term_count"].numpy().tolist() == [0] * len(TEXTS)
    assert served["term"].shape == (len(TEXTS), 0)


def test_similarity(make):
    model = make()
    queries, documents = model.encode(QUERIES), model.encode(DOCUMENTS[:2])
    expected = queries.toarray() @ documents.toarray().T
    received = model.similarity(queries, documents)
    assert received.dtype == np.float32
    np.testing.assert_allclose(received, expected, rtol=1e-5)
    np.testing.assert_allclose(model.similarity(queries.toarray(), documents), expected, rtol=1e-5)
    np.testing.assert_allclose(model.similarity(queries[1], documents), expected[1:2], rtol=1e-5)


@pytest.mark.full
def test_learns_to_rank_with_few_terms(make):
    """The document that fits comes first; regularization leaves fewer terms."""
    examples = (["the film", "a b"] * 30, ["good", "bad"] * 30)
    counts = {}
    for weight in (0.0, 0.01):
        model = make()
        model.compile(AdamWeightDecay(3e-3), objective=SpladeLoss(None, weight, weight))
        model.fit(examples, batch_size=2, epochs=2, shuffle=False, verbose=0)
        documents, queries = model.encode(["good", "bad"]), model.encode(["the film", "a b"])
        assert model.similarity(queries, documents).argmax(axis=1).tolist() == [0, 1]
        counts[weight] = documents.nnz + queries.nnz
    assert 4 <= counts[0.01] < counts[0.0] / 2


@pytest.mark.parametrize("is_inner", [False, True])
@pytest.mark.parametrize("warmup_steps", [0, 2])
def test_the_loss_is_that_of_the_vectors(make, tiny_config, warmup_steps, is_inner):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = make(config)
    loss = SpladeLoss(None, 0.3, 0.7, warmup_steps=warmup_steps)
    loss = MatryoshkaLoss(loss, dims=[model.vector_size]) if is_inner else loss
    # Traced once, with all that there is.
    run_eagerly = not (is_inner and warmup_steps)
    model.compile(keras.optimizers.SGD(0.0), objective=loss, run_eagerly=run_eagerly)
    query, document, other = (
        model.predict(texts, verbose=0).astype(np.float64) for texts in (QUERIES, DOCUMENTS, OTHERS)
    )
    scores = query @ np.concatenate([document, other]).T
    ranking = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))
    flops = 0.7 * np.sum(query.mean(axis=0) ** 2)
    flops += 0.3 * np.sum(np.concatenate([document, other]).mean(axis=0) ** 2)
    examples = (QUERIES, DOCUMENTS, OTHERS)
    history = model.fit(examples, batch_size=3, epochs=3, verbose=0).history
    shares = np.array([0.0, 0.25, 1.0] if warmup_steps else [1.0] * 3)
    np.testing.assert_allclose(history["loss"], ranking + shares * flops, rtol=1e-4)
    assert "accuracy" in history


def test_large_batches_are_encoded_part_by_part(make, tiny_config):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    steps = []
    for loss in (
        MultipleNegativesRankingLoss(1.0, similarity="dot"),
        CachedMultipleNegativesRankingLoss(1.0, mini_batch_size=2, similarity="dot"),
    ):
        model = make(config)
        objective = SpladeLoss(loss, 0.1, 0.1)
        model.compile(keras.optimizers.SGD(0.5), objective=objective, run_eagerly=True)
        options = {"batch_size": 3, "shuffle": False, "verbose": 0}
        history = model.fit((QUERIES, DOCUMENTS), **options).history
        steps.append((history["loss"], [weight.numpy() for weight in model.trainable_weights]))
    np.testing.assert_allclose(steps[0][0], steps[1][0], rtol=1e-5)
    for one, other in zip(steps[0][1], steps[1][1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda model: BertSparseEncoder(model.backbone, pooling="mean"), "`pooling` must"),
        (lambda model: BertSparseEncoder(model.backbone, activation="gelu"), "`activation` must"),
        (lambda model: BertSparseEncoder(model.backbone, max_active_dims=0), "`max_active_dims`"),
        (lambda model: model.encode(TEXTS, max_active_dims=-1), "`max_active_dims` must"),
        (lambda model: model.encode((TEXTS, TEXTS)), "one list of texts"),
        (lambda model: model.encode(TEXTS, prompt_name="query"), "`prompt_name` must"),
        (lambda model: model.decode(np.zeros([1, 5])), r"`embeddings` must be \[n, 64\]"),
        (lambda model: model.decode(np.zeros([1, 64]), top_k=0), "`top_k` must"),
        (lambda model: model.decode([[1.0], [1.0, 2.0]]), "`embeddings` must be an array"),
        (lambda model: model.similarity(np.zeros([1, 64]), np.zeros([1, 3])), "`embeddings2`"),
        (lambda model: model.fit((QUERIES, DOCUMENTS), [1, 0, 1], verbose=0), "MarginMSELoss"),
    ],
)
def test_what_has_no_meaning_is_refused(same_model, call, message):
    with pytest.raises(UserError, match=message):
        call(same_model)


def as_sentence_transformers_writes(directory):
    """Without the entry of this package; `Transformer` with a task, as since version 5.4."""
    config = json.loads((directory / "config.json").read_text())
    del config["bert_tf"]
    (directory / "config.json").write_text(json.dumps(config))
    modules = json.loads((directory / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.base.modules.transformer.Transformer"
    (directory / "modules.json").write_text(json.dumps(modules))
    path = directory / "sentence_bert_config.json"
    transformer = {**json.loads(path.read_text()), "transformer_task": "fill-mask"}
    path.write_text(json.dumps(transformer))


OPTIONS = {
    "pooling": "sum",
    "activation": "log1p_relu",
    "max_active_dims": 7,
    "max_length": 9,
    "prompts": {"query": "the "},
    "default_prompt_name": "query",
}


def test_directories_of_sentence_transformers(make, tmp_path):
    model = make(**OPTIONS)
    model.save_pretrained(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    assert [m["type"].rpartition(".")[2] for m in modules] == ["MLMTransformer", "SpladePooling"]
    as_sentence_transformers_writes(tmp_path)
    opened = BertSparseEncoder.from_pretrained(tmp_path)
    assert {name: getattr(opened, name) for name in OPTIONS} == OPTIONS
    assert not opened.untrained_heads
    expected = model.encode(TEXTS).toarray()
    np.testing.assert_allclose(opened.encode(TEXTS).toarray(), expected, atol=1e-6)
    assert BertSparseEncoder.from_pretrained(tmp_path, pooling="max").pooling == "max"
    move_encoder(tmp_path)
    opened = BertSparseEncoder.from_pretrained(tmp_path)
    assert {name: getattr(opened, name) for name in OPTIONS} == OPTIONS
    np.testing.assert_allclose(opened.encode(TEXTS).toarray(), expected, atol=1e-6)
    assert servable_class(tmp_path) is BertSparseEncoder
    assert not BertMaskedLM.from_pretrained(tmp_path).untrained_heads
    with pytest.raises(CheckpointError, match=r"modules.json .*Received: .*SpladePooling"):
        bert_tf.BertSentenceEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "file, change, message",
    [
        ("modules.json", lambda m: [*m, {**m[1], "type": "x.Normalize"}], "Normalize"),
        ("modules.json", lambda m: [m[1]], "must be MLMTransformer or Transformer"),
        ("sentence_bert_config.json", lambda c: {"max_seq_length": 9}, "`transformer_task`"),
        ("config_sentence_transformers.json", lambda c: {"max_active_dims": 0}, "max_active_dims"),
        ("1_SpladePooling/config.json", lambda c: {"pooling_strategy": 3}, "pooling_strategy"),
    ],
)
def test_other_modules_are_refused(same_model, tmp_path, file, change, message):
    same_model.save_pretrained(tmp_path)
    as_sentence_transformers_writes(tmp_path)
    path = tmp_path / file
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(CheckpointError, match=message):
        BertSparseEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("model_type", ["bert", "distilbert"])
def test_a_masked_language_model_opens(tiny_config, tokenizer, tmp_path, model_type):
    fixed = FAMILIES[model_type].fixed
    config = dataclasses.replace(tiny_config, model_type=model_type, **fixed)
    language_model = BertMaskedLM(BertBackbone(config), tokenizer=tokenizer)
    language_model.save_pretrained(tmp_path / "masked_lm")
    model = BertSparseEncoder.from_pretrained(tmp_path / "masked_lm")
    assert not model.untrained_heads and model.pooling == "max"
    logits = language_model(language_model.tokenize(["good film"]))[0].numpy()
    vector = model.encode(["good film"]).toarray()[0]
    np.testing.assert_allclose(vector, by_hand(logits, "max", "relu"), atol=1e-5)
    model.save_pretrained(tmp_path / "sparse")
    opened = BertSparseEncoder.from_pretrained(tmp_path / "sparse")
    np.testing.assert_allclose(opened.encode(["good film"]).toarray()[0], vector, atol=1e-6)


@pytest.fixture
def library():
    return pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")


@pytest.mark.peers
@pytest.mark.parametrize("pooling, activation", [("max", "relu"), ("sum", "log1p_relu")])
def test_vectors_are_those_of_sentence_transformers(make, library, tmp_path, pooling, activation):
    """Of a directory that this package wrote, and back of one that the other wrote."""
    model = make(pooling=pooling, activation=activation, max_length=12, max_active_dims=15)
    model.save_pretrained(tmp_path / "ours")
    theirs = library.SparseEncoder(str(tmp_path / "ours"), device="cpu")
    assert theirs.max_active_dims == 15 and theirs.max_seq_length == 12
    assert theirs.similarity_fn_name == "dot"
    texts = [*TEXTS, "a b c d e f g h i j k l m n"]
    expected = theirs.encode(texts)
    vectors = model.encode(texts)
    np.testing.assert_allclose(vectors.toarray(), expected.to_dense().numpy(), atol=1e-5)
    for mine, other in zip(model.decode(vectors, top_k=4), theirs.decode(expected, top_k=4)):
        assert [term.piece for term in mine] == [piece for piece, _ in other]
    similar = theirs.similarity(expected, expected).numpy()
    np.testing.assert_allclose(model.similarity(vectors, vectors), similar, rtol=1e-4)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    opened = BertSparseEncoder.from_pretrained(tmp_path / "theirs")
    assert (opened.pooling, opened.activation) == (pooling, activation)
    np.testing.assert_allclose(opened.encode(texts).toarray(), vectors.toarray(), atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_a_model_of_transformers_is_the_same_here_and_there(
    library, tiny_config, tokenizer, tmp_path, name
):
    import transformers

    config = dataclasses.replace(
        tiny_config, model_type=name, classifier_dropout=0.1, **FAMILIES[name].fixed
    )
    BertMaskedLM(BertBackbone(config), tokenizer=tokenizer).save_pretrained(tmp_path / "ours")
    language_model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours")
    language_model.save_pretrained(tmp_path / "transformers")
    tokenizer.save_pretrained(tmp_path / "transformers")
    theirs = library.SparseEncoder(str(tmp_path / "transformers"), device="cpu")
    theirs.save_pretrained(str(tmp_path / "theirs"))
    expected = theirs.encode(TEXTS).to_dense().numpy()
    for directory in ("transformers", "theirs"):
        opened = BertSparseEncoder.from_pretrained(tmp_path / directory)
        np.testing.assert_allclose(opened.encode(TEXTS).toarray(), expected, atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("threshold", [None, 30])
def test_losses_are_those_of_sentence_transformers(make, library, threshold):
    import torch
    from sentence_transformers.sparse_encoder import losses

    values = np.random.default_rng(1).random([3, 4, 64]).astype(np.float32)  # [K, B, V]
    values[:, :2] *= np.random.default_rng(2).random([3, 2, 64]) < 0.3
    margins = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
    arguments = {
        "document_regularizer_weight": 0.3,
        "query_regularizer_weight": 0.7,
        "document_regularizer_threshold": threshold,
        "query_regularizer_threshold": threshold,
    }
    module = torch.nn.Module()
    cases = [
        (losses.SparseMultipleNegativesRankingLoss(module), None, None),
        (losses.SparseMarginMSELoss(module), MarginMSELoss(), margins),
    ]
    for theirs, ours, labels in cases:
        vectors = [torch.tensor(v, requires_grad=True) for v in values]
        splade = losses.SpladeLoss(module, theirs, **arguments)
        parts = [
            theirs.compute_loss_from_embeddings(
                vectors, None if labels is None else torch.tensor(labels)
            ),
            0.3 * splade.document_regularizer.compute_loss_from_embeddings(torch.cat(vectors[1:])),
            0.7 * splade.query_regularizer.compute_loss_from_embeddings(vectors[0]),
        ]
        expected = sum(parts)
        expected.backward()
        loss = SpladeLoss(ours, **arguments)
        variable = tf.Variable(values.transpose(1, 0, 2))  # [B, K, V]
        with tf.GradientTape() as tape:
            received = tf.reduce_mean(loss.losses(labels, loss.outputs(variable)))
        np.testing.assert_allclose(received, expected.item(), rtol=1e-5)
        gradient = tf.transpose(tape.gradient(received, variable), [1, 0, 2])
        for mine, other in zip(gradient, vectors):
            np.testing.assert_allclose(mine, other.grad.numpy(), atol=1e-5)
