"""Classify and regress: TensorFlow Serving's signatures and those of our exports, in its forms."""

import asyncio
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.inputs import TOKEN_BUDGET
from bert_tf.server.batcher import Batcher
from bert_tf.server.errors import RequestError
from bert_tf.server.example_requests import read_classes
from bert_tf.server.grpc_api import GrpcApi
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


def served(path, ask):
    """What a coroutine function of `ModelRequests` returns."""
    limits = Limits(max_rows=4, max_body=2000, max_text_length=500)

    async def run():
        queue = TOKEN_BUDGET, 0.0, limits, Metrics()
        versions = ModelVersions("served", path, lambda model: Batcher(model, *queue))
        await versions.load_first()
        found = await ask(ModelRequests(versions, limits))
        await versions.close()
        return found

    return asyncio.run(run())


def answers(path, *requests):
    """What REST answers to `(action, document)`, or the RequestError."""

    async def ask(model_requests):
        api, limits = RestApi(model_requests), model_requests.limits
        found = []
        for action, document in requests:
            with Memory(limits.max_buffered).share() as hold:
                target = RequestTarget(action, "served", None)
                try:
                    found.append(json.loads(await api.answer(target, Body(document), hold)))
                except RequestError as error:
                    found.append(error)
        return found

    return served(path, ask)


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
    ("classify", {"examples": [{"x" * 500: None}]}, "x" * 100 + " has element"),
    ("classify", {"signature_name": 1, "examples": [ONE]}, "must be a string"),
    ("classify", {"signature_name": "no", "examples": [ONE]}, "not found in signature"),
    ("classify", {"signature_name": "regress", "examples": [ONE]}, "an output classes or scores"),
    ("regress", {"examples": [ONE]}, "an output outputs or score"),
    ("regress", {"signature_name": "number", "examples": [ONE]}, "must have one string input"),
    ("regress", {"signature_name": "two", "examples": [ONE]}, "but got [1, 2]"),
]


def test_refused(path):
    found = answers(path, *(request[:2] for request in REFUSED))
    for (_action, document, message), error in zip(REFUSED, found, strict=True):
        assert isinstance(error, RequestError), (document, error)
        assert error.status in (400, 413) and message in error.message, document


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"classes": [["a", "b"]], "scores": [[0.5, 0.5, 0.0]]}, "[1, 2] and [1, 3]"),
        ({"probabilities": [0.5]}, "num_classes] but got [1]"),
        ({"classes": [["a"]], "scores": [["b"]]}, "numbers as scores"),
        ({"classes": [[1]], "scores": [[0.5]]}, "strings as classes"),
    ],
)
def test_outputs_that_are_no_classes(outputs, message):
    """A model of a stranger may have any."""
    arrays = {name: np.array(values) for name, values in outputs.items()}
    arrays = {n: x.astype(object) if x.dtype.kind == "U" else x for n, x in arrays.items()}
    with pytest.raises(RequestError) as error:
        read_classes(arrays, [])
    assert message in error.value.message


def test_memory_of_an_answer_of_grpc(path):
    """Each class is a message, of about 100 bytes."""
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    from tensorflow_serving.apis import classification_pb2

    request, held = classification_pb2.ClassificationRequest(), []
    request.model_spec.name = "served"
    for x in ([1.0, 2.5], [0.5, 0.25]):
        example = request.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.extend(x)
    request.model_spec.signature_name = "scores"

    async def ask(requests):
        _, classify = GrpcApi(requests).methods["/tensorflow.serving.PredictionService/Classify"]
        return await classify(request.SerializeToString(), held.append)

    answer = classification_pb2.ClassificationResponse.FromString(served(path, ask))
    scores = [[c.score for c in row.classes] for row in answer.result.classifications]
    assert scores == [[1.0, 2.5], [0.5, 0.25]]
    assert max(held) >= 100 * 4
