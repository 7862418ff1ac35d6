"""Paths, formats and errors, as tensorflow/serving's g3doc/api_rest.md describes them."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.server.errors import RequestError
from bert_tf.server.rest_api import parse_path

TEXTS = ["the good film.", "bad", "", "good café", "film " * 30]


@pytest.fixture(scope="module")
def logits(tiny_classifier):
    """The model's own, float32 [5, 2]."""
    return tiny_classifier(tf.constant(TEXTS), training=False).numpy()


def test_rows_and_columns_give_the_models_numbers(server, logits):
    status, answer = server.predict({"instances": TEXTS})
    assert status == 200
    np.testing.assert_allclose([row["logits"] for row in answer["predictions"]], logits, atol=1e-5)
    labels = [("bad", "good")[row] for row in logits.argmax(axis=1)]
    assert [row["label"] for row in answer["predictions"]] == labels
    for body in (
        {"instances": [{"text": text} for text in TEXTS]},
        {"signature_name": "serving_default", "instances": TEXTS},
    ):
        assert server.predict(body) == (200, answer)
    for inputs in (TEXTS, {"text": TEXTS}):
        status, columns = server.predict({"inputs": inputs})
        assert status == 200 and columns["outputs"]["label"] == labels
        np.testing.assert_allclose(columns["outputs"]["logits"], logits, atol=1e-5)


def test_numbers_in(server, tiny_classifier, logits):
    tokens = tiny_classifier.tokenize(TEXTS)
    tokens = {name: array.numpy().tolist() for name, array in tokens.items()}
    rows = [dict(zip(tokens, row)) for row in zip(*tokens.values())]
    status, answer = server.predict({"signature_name": "tokens", "instances": rows})
    assert status == 200, answer
    np.testing.assert_allclose([row["logits"] for row in answer["predictions"]], logits, atol=1e-5)
    assert server.predict({"signature_name": "tokens", "inputs": tokens})[0] == 200


def test_base64_is_the_same_text(server):
    plain = server.predict({"instances": ["good café"]})
    assert server.predict({"instances": [{"b64": "Z29vZCBjYWbDqQ=="}]}) == plain


def test_status_and_metadata(server):
    available = {
        "model_version_status": [
            {
                "version": "1",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    assert server.json("GET", "/v1/models/tiny") == (200, available)
    assert server.json("GET", "/v1/models/tiny/versions/1") == (200, available)
    for path in ("/v1/models/tiny/metadata", "/v1/models/tiny/versions/1/metadata"):
        status, metadata = server.json("GET", path)
        assert status == 200
        assert metadata["model_spec"] == {"name": "tiny", "signature_name": "", "version": "1"}
        signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        assert signature["inputs"]["text"]["dtype"] == "DT_STRING"
        assert signature["inputs"]["text"]["tensor_shape"] == {
            "dim": [{"size": "-1", "name": ""}],
            "unknown_rank": False,
        }


# Method, path, status and part of the message: those of http_rest_api_handler_test.cc.
REFUSED = [
    ("GET", "/v1/foo", 400, "Malformed request: GET /v1/foo"),
    ("POST", "/v1/foo", 400, "Malformed request"),
    ("GET", "/v1/models/debug/model_name", 400, "Malformed request"),
    ("POST", "/v1/models", 400, "Malformed request"),
    ("GET", "/v1/models/tiny:predict", 400, "Malformed request"),
    ("POST", "/v1/models/tiny/version/50:predict", 400, "Malformed request"),
    ("POST", "/v1/models/tiny/versions/HELLO:predict", 400, "Malformed request"),
    ("POST", f"/v1/models/tiny/versions/{2**64 - 1}:predict", 400, "Failed to convert version"),
    ("POST", f"/v1/models/tiny/versions/{'9' * 5000}:predict", 400, "Failed to convert version"),
    ("GET", f"/v1/models/tiny/versions/{'0' * 20}{'9' * 5000}", 400, "Failed to convert version"),
    ("POST", "/v1/models/tiny/metadata", 400, "Malformed request"),
    ("DELETE", "/v1/models/tiny", 400, "Malformed request"),
    ("POST", "/v1/models/tiny/labels/stable:predict", 400, "Unrecognized servable version label"),
    ("POST", "/v1/models/foo:predict", 404, "Servable not found for request: Latest(foo)"),
    ("POST", "/v1/models/tiny/versions/99:predict", 404, "Specific(tiny, 99)"),
    ("GET", "/v1/models/foo", 404, "Could not find any versions of model foo"),
    ("GET", "/v1/models/tiny/versions/99", 404, "Could not find version 99 of model tiny"),
    ("GET", "/v1/models/foo/metadata", 404, "Servable not found"),
    ("POST", "/v1/models/tiny:classify", 400, "'examples' must be a list"),
    ("GET", "/elsewhere", 404, "Not Found"),
    ("PUT", "/healthz", 405, "Method Not Allowed"),
]


@pytest.mark.parametrize(("method", "path", "status", "message"), REFUSED)
def test_refused(server, method, path, status, message):
    body = '{"instances": ["good"]}' if method == "POST" else None
    received, answer = server.json(method, path, body)
    assert (received, list(answer)) == (status, ["error"])
    assert message in answer["error"]


def test_another_method_is_refused_with_those_that_are_allowed(server):
    for path in ("/healthz", "/", "/metrics"):
        status, headers, _ = server.ask("DELETE", path)
        assert (status, headers["Allow"]) == (405, "GET,HEAD")


GOT = (
    *("/", "/page.json", "/healthz", "/readyz", "/metrics", "/monitoring/prometheus/metrics"),
    *("/v1/models", "/v1/models/tiny", "/v1/models/tiny/metadata"),
)


@pytest.mark.parametrize("path", GOT)
def test_head_is_get_without_a_body(server, path):
    status, expected, _ = server.ask("GET", path)
    received, headers, body = server.ask("HEAD", path)
    assert (received, status, body) == (200, 200, b"")
    assert headers["Content-Type"] == expected["Content-Type"]
    assert "Content-Length" in headers


@pytest.mark.parametrize(
    "body, flag",
    [
        ({"instances": ["a"] * 65}, "--max_rows"),
        ({"instances": ["a" * 2001]}, "--max_text_length"),
        ({"instances": ["a" * 100_001]}, "--max_body_bytes"),
    ],
)
def test_the_message_of_a_limit_names_its_flag(server, body, flag):
    status, answer = server.predict(body)
    assert status in (400, 413) and answer["error"].endswith(f" See {flag}.")


def test_paths():
    assert parse_path("POST", "/V1/Models/a%20b/versions/7:Predict") == ("predict", "a b", 7, None)
    assert parse_path("GET", "/v1/models/m/metadata") == ("metadata", "m", None, None)
    assert parse_path("GET", f"/v1/models/m/versions/{'0' * 5000}7") == ("status", "m", 7, None)
    assert parse_path("GET", "/v1/models/m/versions/0") == ("status", "m", 0, None)
    assert parse_path("POST", "/v1/models/m/labels/a%20b:regress") == ("regress", "m", None, "a b")
    with pytest.raises(RequestError, match="Malformed"):
        parse_path("POST", "/v1/models/m/versions/1/labels/x:predict")


def test_health_metrics_and_page(server):
    assert server.json("GET", "/healthz") == (200, {"status": "alive"})
    assert server.json("GET", "/readyz") == (200, {"ready": True})
    name = 'bert_tf_requests_total{method="predict",protocol="rest",status="200"}'
    before = server.metric(name)
    assert server.predict({"instances": ["good", "bad", "film"]})[0] == 200
    assert server.metric(name) == before + 1
    assert server.metric("bert_tf_batch_rows_sum") >= 3
    assert server.metric("bert_tf_model_version") == 1
    status, headers, page = server.ask("GET", "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"http://" not in page and b"https://" not in page  # it needs nobody else
    facts = server.json("GET", "/page.json")[1]
    assert facts["inputs"] == ["text"] and facts["model"] == "tiny"
