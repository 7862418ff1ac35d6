"""Embeddings in OpenAI's form, rerank in Cohere's, and the forms of Text Embeddings Inference."""

import base64
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import (
    BertBackbone,
    BertCrossEncoder,
    BertLateInteractionEncoder,
    BertSentenceEncoder,
    BertSparseEncoder,
    BertTokenizer,
)
from bert_tf.server.export_for_server import export_for_server
from bert_tf.server.limits import Limits
from tests.server.process import ServerProcess

TEXTS = ["the good film.", "bad", "", "good café"]
LIMITS = ("--max_body_bytes=100000", "--max_text_length=2000", "--max_rows=64")


def served(model, tmp_path_factory):
    saved, folder = (tmp_path_factory.mktemp(name) for name in ("saved", "exported"))
    model.save_pretrained(saved)
    export_for_server(saved, folder, "float32")
    return ServerProcess(folder, *LIMITS)


def backbone_and_tokenizer(config, vocabulary):
    tf.keras.utils.set_random_seed(5)
    backbone = BertBackbone(dataclasses.replace(config, num_hidden_layers=1))
    return backbone, BertTokenizer(vocabulary, lowercase=False)


@pytest.fixture(scope="module")
def encoder(tiny_config, tiny_vocabulary):
    backbone, tokenizer = backbone_and_tokenizer(tiny_config, tiny_vocabulary)
    return BertSentenceEncoder(backbone, normalize=True, tokenizer=tokenizer, max_length=20)


@pytest.fixture(scope="module")
def embedder(encoder, tmp_path_factory):
    with served(encoder, tmp_path_factory) as process:
        yield process


@pytest.fixture(scope="module")
def ranker(tiny_config, tiny_vocabulary):
    backbone, tokenizer = backbone_and_tokenizer(tiny_config, tiny_vocabulary)
    model = BertCrossEncoder(backbone, tokenizer=tokenizer, max_length=20)
    model.classifier.kernel.assign(model.classifier.kernel * 50.0)
    return model


@pytest.fixture(scope="module")
def reranker(ranker, tmp_path_factory):
    with served(ranker, tmp_path_factory) as process:
        yield process


def test_embeddings(embedder, encoder):
    status, answer = embedder.json("POST", "/v1/embeddings", {"model": "tiny", "input": TEXTS})
    assert status == 200, answer
    assert (answer["object"], answer["model"]) == ("list", "tiny")
    assert [(row["object"], row["index"]) for row in answer["data"]] == [
        ("embedding", index) for index in range(len(TEXTS))
    ]
    vectors = [row["embedding"] for row in answer["data"]]
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=1e-6)
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] == 4 + 1 + 0 + 3


@pytest.mark.full
def test_a_directory_of_sentence_transformers(minilm, tmp_path):
    """With the real weights, as others have written them."""
    with ServerProcess(minilm) as process:
        body = {"input": ["A dog barks.", "Rates rose."]}
        status, answer = process.json("POST", "/v1/embeddings", body)
    assert status == 200, answer
    vectors = [row["embedding"] for row in answer["data"]]
    expected = BertSentenceEncoder.from_pretrained(minilm).encode(body["input"])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_one_text_in_fewer_dimensions_and_base64(embedder, encoder):
    body = {"input": TEXTS[0], "encoding_format": "base64", "dimensions": 8}
    _, answer = embedder.json("POST", "/v1/embeddings", body)
    (row,) = answer["data"]
    vector = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    np.testing.assert_allclose(vector, encoder.encode(TEXTS[0], truncate_dim=8), atol=1e-6)


@pytest.fixture(scope="module")
def sparse_encoder(tiny_config, tiny_vocabulary):
    backbone, tokenizer = backbone_and_tokenizer(tiny_config, tiny_vocabulary)
    return BertSparseEncoder(backbone, tokenizer=tokenizer, max_length=20, max_active_dims=6)


@pytest.fixture(scope="module")
def sparse(sparse_encoder, tmp_path_factory):
    with served(sparse_encoder, tmp_path_factory) as process:
        yield process


def test_sparse_vectors(sparse, sparse_encoder):
    expected = sparse_encoder.encode(TEXTS)
    for body in ({"input": TEXTS}, {"input": TEXTS, "type": "sparse"}):
        status, answer = sparse.json("POST", "/v1/embeddings", body)
        assert status == 200, answer
        for index, row in enumerate(answer["data"]):
            found, vector = row["embedding"], np.zeros(expected.shape[1])
            vector[found["indices"]] = found["values"]
            assert len(found["indices"]) == len(found["values"]) <= 6
            np.testing.assert_allclose(vector, expected[[index]].toarray()[0], atol=1e-5)
    for sent, texts in ((TEXTS, TEXTS), (TEXTS[0], TEXTS[:1])):
        status, answer = sparse.json("POST", "/embed_sparse", {"inputs": sent})
        assert status == 200 and len(answer) == len(texts), answer
        for index, row in enumerate(answer):
            vector = np.zeros(expected.shape[1])
            vector[[term["index"] for term in row]] = [term["value"] for term in row]
            np.testing.assert_allclose(vector, expected[[index]].toarray()[0], atol=1e-5)


@pytest.fixture(scope="module")
def late_encoder(tiny_config, tiny_vocabulary):
    backbone, tokenizer = backbone_and_tokenizer(tiny_config, tiny_vocabulary)
    options = {"max_length": 20, "dim": 8, "query_max_length": 9}
    return BertLateInteractionEncoder(backbone, tokenizer=tokenizer, **options)


@pytest.fixture(scope="module")
def late(late_encoder, tmp_path_factory):
    with served(late_encoder, tmp_path_factory) as process:
        yield process


@pytest.mark.parametrize(
    "kind,method", [("query", "encode_queries"), ("document", "encode_documents")]
)
def test_vectors_of_tokens(late, late_encoder, kind, method):
    expected = getattr(late_encoder, method)(TEXTS)
    body = {"input": TEXTS, "type": "colbert", "input_type": kind}
    status, answer = late.json("POST", "/v1/embeddings", body)
    assert status == 200, answer
    for row, vectors in zip(answer["data"], expected, strict=True):
        np.testing.assert_allclose(row["embedding"], vectors, atol=1e-5)
    status, answer = late.json("POST", "/v1/embeddings", {**body, "encoding_format": "base64"})
    for row, vectors in zip(answer["data"], expected, strict=True):
        found = np.frombuffer(base64.b64decode(row["embedding"]), "<f4").reshape(-1, 8)
        np.testing.assert_allclose(found, vectors, atol=1e-5)


def test_documents_are_ranked_by_late_interaction(late, late_encoder):
    status, answer = late.json("POST", "/rerank", {"query": "good film", "documents": TEXTS})
    assert status == 200, answer
    expected = late_encoder.rank("good film", TEXTS)
    assert [row["index"] for row in answer["results"]] == [d.index for d in expected]


@pytest.mark.parametrize(
    "server,path,body,status,words",
    [
        ("late", "/v1/embeddings", {"type": "dense"}, 400, "`type` must be one of"),
        ("late", "/v1/embeddings", {"dimensions": 4}, 400, "`dimensions` must be left out"),
        ("late", "/v1/embeddings", {"input_type": "x"}, 400, "`input_type` must be one of"),
        ("late", "/embed_sparse", {}, 501, "must be a BertSparseEncoder"),
        ("sparse", "/v1/embeddings", {"type": "colbert"}, 400, "`type` must be one of"),
        ("sparse", "/v1/embeddings", {"encoding_format": "base64"}, 400, "must be left out"),
        ("sparse", "/embed_sparse", {"inputs": [1]}, 400, "`inputs` must be strings"),
        ("sparse", "/embed_sparse", {"inputs": []}, 400, "`inputs` must have at least one"),
        ("embedder", "/v1/embeddings", {"input_type": "query"}, 400, "must be left out"),
        ("reranker", "/v1/embeddings", {}, 501, "must be a"),
    ],
)
def test_types_that_a_model_has_not(request, server, path, body, status, words):
    key = "inputs" if path == "/embed_sparse" else "input"
    process = request.getfixturevalue(server)
    found, answer = process.json("POST", path, {key: "good", **body})
    assert found == status and words in str(answer), answer


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank_in_coheres_form(reranker, ranker, path):
    documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
    body = {"query": "good film", "documents": documents, "top_n": 3, "return_documents": True}
    status, answer = reranker.json("POST", path, body)
    assert status == 200, answer
    expected = ranker.rank("good film", TEXTS, top_k=3)
    assert [row["index"] for row in answer["results"]] == [d.index for d in expected]
    assert [row["document"]["text"] for row in answer["results"]] == [d.text for d in expected]
    scores = [row["relevance_score"] for row in answer["results"]]
    np.testing.assert_allclose(scores, [d.score for d in expected], atol=1e-6)


def test_rerank_in_the_form_of_text_embeddings_inference(reranker, ranker):
    body = {"query": "good film", "texts": TEXTS, "raw_scores": True}
    status, answer = reranker.json("POST", "/rerank", body)
    assert status == 200, answer
    logits = ranker.predict((["good film"] * len(TEXTS), TEXTS), verbose=0)[:, 0]
    assert [row["index"] for row in answer] == np.argsort(-logits, kind="stable").tolist()
    np.testing.assert_allclose([row["score"] for row in answer], np.sort(logits)[::-1], atol=1e-5)
    assert not any("text" in row for row in answer)


def test_null_is_as_good_as_absent(embedder, reranker):
    for process, path, body, names in (
        (embedder, "/v1/embeddings", {"input": TEXTS}, ("model", "encoding_format", "dimensions")),
        (
            reranker,
            "/rerank",
            {"query": "a", "documents": TEXTS},
            ("top_n", "return_documents", "raw_scores", "texts"),
        ),
        (reranker, "/rerank", {"query": "a", "texts": TEXTS}, ("return_text", "documents")),
    ):
        expected = process.json("POST", path, body)
        assert expected[0] == 200
        assert process.json("POST", path, {**body, **dict.fromkeys(names)}) == expected


@pytest.mark.parametrize(
    "body, message",
    [
        ({}, "`input` must be strings. Received: null"),
        ({"input": []}, "`input` must have at least one string"),
        ({"input": [1, 2]}, "`input` must be strings"),
        ({"input": [1, 2]}, "check_embedding_ctx_length=False"),
        ({"input": [[1, 2], [3]]}, "Token ids are those of another tokenizer"),
        ({"input": "a", "truncate": "END"}, "`truncate` must be true or left out"),
        ({"input": "a", "input_type": "query"}, "`input_type` must be left out"),
        ({"input": "a", "model": "other"}, "`model` must be 'tiny'"),
        ({"input": "a", "dimensions": 33}, "`dimensions` must be an integer from 1 to 32"),
        ({"input": "a", "dimensions": True}, "`dimensions` must be an integer"),
        ({"input": "a", "encoding_format": "int8"}, "`encoding_format` must be one of"),
        ({"input": "a" * 2001}, "at most 2000 characters"),
        ({"input": ["a"] * 65}, "at most 64 rows"),
        ([], "Is not object"),
    ],
)
def test_wrong_requests_for_embeddings(embedder, body, message):
    status, answer = embedder.json("POST", "/v1/embeddings", body)
    assert status in (400, 404) and message in answer["error"]["message"], answer


@pytest.mark.parametrize(
    "body, message",
    [
        ({"texts": ["a"]}, "`query` must be a string"),
        ({"query": "a"}, '`documents` or `texts` must be strings. Received: {"query": "a"}'),
        (
            {"query": "a", "documents": [{"title": "a"}]},
            '`documents` must be strings, or objects with a `text`. Received: [{"title": "a"}]',
        ),
        ({"query": "a", "texts": ["a"], "top_n": 0}, "`top_n` must be"),
        ({"query": "a", "texts": ["a"], "raw_scores": 1}, "`raw_scores` must be true or false"),
        ({"query": "a", "texts": ["a"], "top_k": True}, "`top_k` must be"),
        ({"query": "a", "texts": ["a"], "top_k": 1, "top_n": 2}, "`top_k` must be `top_n`"),
        ({"query": "a", "texts": ["a"], "documents": ["b"]}, "`texts` must be left out"),
        ({"query": "a", "texts": ["a"], "return_documents": True}, "`return_documents` must be"),
        ({"query": "a", "documents": ["a"], "return_text": True}, "`return_text` must be left"),
        ({"query": "a", "documents": ["a"], "rank_fields": ["title"]}, "`rank_fields` must be"),
        ({"query": "a", "documents": ["a"], "max_tokens_per_doc": 9}, "`max_tokens_per_doc`"),
        ({"query": "a", "texts": ["a" * 2001]}, "`texts` must have at most 2000 characters"),
        ({"query": "a" * 2001, "texts": ["a"]}, "`query` must have at most 2000 characters"),
        ({"query": "a", "texts": ["a"], "truncate": False}, "`truncate` must be true or left out"),
        ({"query": "a", "texts": ["a"], "truncation_direction": "Left"}, "must be left out"),
        # The query is not copied for every document.
        ({"query": "a" * 2000, "texts": [""] * 20000}, "at most 64 rows. Received: 20000 rows"),
    ],
)
def test_wrong_requests_to_rerank(reranker, body, message):
    status, answer = reranker.json("POST", "/rerank", body)
    assert status == 400 and message in answer["error"], answer


def test_a_query_counts_once_for_each_document(reranker):
    """A small body, of which each document takes the work of a long text."""
    documents = [""] * 50
    assert reranker.json("POST", "/rerank", {"query": "a " * 999, "texts": documents})[0] == 200
    status, answer = reranker.json("POST", "/rerank", {"query": "a" * 2000, "texts": ["a"] * 50})
    assert status == 413 and "at most 100000 bytes together" in answer["error"]
    assert "Received: 100050 bytes" in answer["error"]


def test_a_model_that_computes_something_else(embedder, reranker):
    status, answer = embedder.json("POST", "/rerank", {"query": "a", "texts": ["a"]})
    assert status == 501 and "BertCrossEncoder" in answer["error"]
    status, answer = reranker.json("POST", "/v1/embeddings", {"input": "a"})
    assert status == 501 and "BertSentenceEncoder" in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank", "/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_another_method(embedder, path, method):
    status, headers, _ = embedder.ask(method, path)
    assert (status, headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "method, body, status, expected",
    [
        ("POST", {"input": 1}, 400, ("invalid_request_error", "input", None)),
        ("POST", {"input": ["a"] * 65}, 400, ("invalid_request_error", None, None)),
        ("POST", {"input": "a" * 2001}, 400, ("invalid_request_error", "input", None)),
        ("POST", {"input": "a", "model": "b"}, 404, ("invalid_request_error", "model", None)),
        ("POST", b"{", 400, ("invalid_request_error", None, None)),
        ("POST", b" " * 100_001, 413, ("invalid_request_error", None, None)),
        ("GET", None, 405, ("invalid_request_error", None, None)),
    ],
)
def test_errors_of_embeddings_have_openais_form(embedder, method, body, status, expected):
    received, answer = embedder.json(method, "/v1/embeddings", body)
    error = answer["error"]
    assert received == status and list(error) == ["message", "type", "param", "code"]
    assert (error["type"], error["param"], error["code"]) == expected and error["message"]


def test_the_list_of_models(embedder):
    status, answer = embedder.json("GET", "/v1/models")
    assert status == 200 and answer["object"] == "list"
    (model,) = answer["data"]
    assert (model["id"], model["object"]) == ("tiny", "model")
    assert isinstance(model["created"], int) and model["owned_by"]


def test_as_many_inputs_as_openai_allows():
    assert Limits().max_rows == 2048


def test_top_k_is_another_name_of_top_n(reranker):
    body = {"query": "good film", "documents": TEXTS}
    expected = reranker.json("POST", "/rerank", {**body, "top_n": 2})
    assert expected[0] == 200 and len(expected[1]["results"]) == 2
    for more in ({"top_k": 2}, {"top_k": 2, "top_n": 2}, {"top_n": 2, "rank_fields": ["text"]}):
        assert reranker.json("POST", "/rerank", {**body, **more}) == expected


def test_what_the_server_does_anyway_may_be_asked_for(embedder, reranker):
    for process, path, body in (
        (embedder, "/v1/embeddings", {"input": "a", "user": "someone"}),
        (reranker, "/rerank", {"query": "a", "texts": ["b"], "user": "someone"}),
    ):
        assert process.json("POST", path, {**body, "truncate": True})[0] == 200
