"""Classify and regress: TensorFlow Serving's signatures and those of our exports, in its forms."""

import asyncio
import json

import pytest
import tensorflow as tf

from bert_tf.inputs import TOKEN_BUDGET
from bert_tf.server.batcher import Batcher
from bert_tf.server.errors import RequestError
from bert_tf.server.limits import Limits, Memory
from bert_tf.server.metrics import Metrics
from bert_tf.server.model_requests import ModelRequests
from bert_tf.server.model_versions import ModelVersions
from bert_tf.server.rest_api import RequestTarget, RestApi
from tests.server.test_memory import Body

EXAMPLES = [{"x": [1.0, 2.5], "n": 3}, {"x": [0.5, 0.25]}]
_FEATURES = {
    "x": tf.io.FixedLenFeature([2], tf.float32),
    "n": tf.io.FixedLenFeature([], tf.int64, default_value=7),
}
_STRINGS = [tf.TensorSpec([None], tf.string, name="inputs")]


class Served(tf.Module):
    """As TensorFlow's estimators export them: serialised examples in, these outputs out."""

    @tf.function(input_signature=_STRINGS)
    def classify(self, inputs):
        parsed = tf.io.parse_example(inputs, _FEATURES)
        names = tf.tile(tf.constant([["a", "é"]]), [tf.size(inputs), 1])
        return {"classes": names, "scores": parsed["x"]}

    @tf.function(input_signature=_STRINGS)
    def scores(self, inputs):
        return {"scores": tf.io.parse_example(inputs, _FEATURES)["x"]}

    @tf.function(input_signature=_STRINGS)
    def regress(self, inputs):
        parsed = tf.io.parse_example(inputs, _FEATURES)
        return {"outputs": parsed["x"][:, :1] + tf.cast(parsed["n"], tf.float32)[:, tf.newaxis]}

    @tf.function(input_signature=_STRINGS)
    def two(self, inputs):
        return {"outputs": tf.io.parse_example(inputs, _FEATURES)["x"]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def number(self, x):
        return {"outputs": x}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "1"
    module = Served()
    names = ("classify", "scores", "regress", "two", "number")
    signatures = {name: getattr(module, name) for name in names}
    tf.saved_model.save(module, str(path), signatures | {"serving_default": module.classify})
    return path


def answers(path, *requests):
    """What REST answers to `(action, document)`, or the RequestError."""
    limits = Limits(max_rows=4, max_body=2000, max_text_length=500)

    async def run():
        make = Batcher, TOKEN_BUDGET, 0.0, limits, Metrics()
        versions = ModelVersions("served", path, lambda model: make[0](model, *make[1:]))
        await versions.load_first()
        api = RestApi(ModelRequests(versions, limits))
        found = []
        for action, document in requests:
            with Memory(limits.max_buffered).share() as hold:
                target = RequestTarget(action, "served", None)
                try:
                    found.append(json.loads(await api.answer(target, Body(document), hold)))
                except RequestError as error:
                    found.append(error)
        await versions.close()
        return found

    return asyncio.run(run())


def test_results(path):
    named = {"signature_name": "regress", "examples": EXAMPLES}
    context = {**named, "context": {"n": 1}}
    found = answers(
        path,
        ("classify", {"examples": EXAMPLES}),
        ("classify", {"signature_name": "scores", "examples": EXAMPLES}),
        ("regress", named),
        ("regress", context),
    )
    assert found == [
        {"results": [[["a", 1.0], ["é", 2.5]], [["a", 0.5], ["é", 0.25]]]},
        {"results": [[["", 1.0], ["", 2.5]], [["", 0.5], ["", 0.25]]]},
        {"results": [4.0, 7.5]},
        {"results": [4.0, 1.5]},  # the context is overridden by an example
    ]


ONE = {"x": [1.0, 2.0]}
REFUSED = [
    ("classify", {}, "'examples' must be a list"),
    ("classify", {"examples": []}, "at least one example"),
    ("classify", {"examples": [1]}, "must be JSON object"),
    ("classify", {"context": [], "examples": [ONE]}, "must be JSON object"),
    ("classify", {"examples": [{"x": None}]}, "unexpected JSON type: null"),
    ("classify", {"examples": [{"x": [[1.0]]}]}, "unexpected JSON type"),
    ("classify", {"examples": [{"x": [1, 2.5]}]}, "one type. Received: float_list, int64_list"),
    ("classify", {"examples": [{"x": 2**63}]}, "must have int64 values"),
    ("classify", {"examples": [{"x": [1.0, 1e300]}]}, "must have float32 values"),
    ("classify", {"examples": [{"\ud800": 1.0}]}, "name of a feature"),
    ("classify", {"examples": [{"x": "\ud800"}]}, "surrogate"),
    ("classify", {"examples": [{"x": {"b64": "%"}}]}, "base64"),
    ("classify", {"examples": [{"x": 1.0}]}, ""),  # TensorFlow's: too few values
    ("classify", {"examples": [ONE] * 5}, "at most 4 rows"),
    ("classify", {"context": {"c": "a" * 480}, "examples": [ONE] * 4}, "a context for each"),
    ("classify", {"examples": [{"c": "a" * 490, **ONE}]}, "at most 500 characters"),
    ("classify", {"signature_name": 1, "examples": [ONE]}, "must be a string"),
    ("classify", {"signature_name": "no", "examples": [ONE]}, "not found in signature"),
    ("classify", {"signature_name": "regress", "examples": [ONE]}, "an output classes or scores"),
    ("regress", {"examples": [ONE]}, "an output outputs or score"),
    ("regress", {"signature_name": "number", "examples": [ONE]}, "must have one string input"),
    ("regress", {"signature_name": "two", "examples": [ONE]}, "but got \\[1, 2\\]"),
]


def test_refused(path):
    found = answers(path, *(request[:2] for request in REFUSED))
    for (_action, document, message), error in zip(REFUSED, found, strict=True):
        assert isinstance(error, RequestError), (document, error)
        assert error.status in (400, 413) and message.replace("\\", "") in error.message, document
