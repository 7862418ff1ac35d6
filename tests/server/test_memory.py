"""What the server loads, and what requests and answers may hold: all of them together, and each."""

import asyncio
import json
import sys

import numpy as np
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
from bert_tf.server.served_model import register_text_operations
from tests.server.process import PATIENCE, ServerProcess

WIDTH = 1000


class Wide(tf.Module):
    """A little in, much out."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name="ids")])
    def one_hot(self, ids):
        return {"y": tf.one_hot(ids, WIDTH)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def repeat(self, text):
        return {"y": tf.ones([tf.size(text), 50 * WIDTH])[:, : 60 * tf.size(text) * WIDTH]}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="text"),
            tf.TensorSpec([None, None], tf.string, name="choices"),
        ]
    )
    def choose(self, text, choices):
        return {"y": tf.strings.length(text[:, tf.newaxis] + choices)}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("wide") / "1"
    module = Wide()
    tf.saved_model.save(
        module,
        str(path),
        {"serving_default": module.one_hot, "repeat": module.repeat, "choose": module.choose},
    )
    return path


class Body:
    """Has what is read of aiohttp's request."""

    def __init__(self, document):
        self._text = json.dumps(document).encode()
        self.content_length = len(self._text)
        self.content = self
        self.headers = {}

    async def iter_any(self):
        yield self._text


def _run(path, scenario, batch_wait=0.0, **limits):
    """`scenario(ask, memory)`; `ask(document)` is the answer's text or a RequestError."""
    limits = Limits(request_timeout=PATIENCE, **limits)
    memory = Memory(limits.max_buffered)

    async def run():
        versions = ModelVersions(
            "wide", path, lambda model: Batcher(model, TOKEN_BUDGET, batch_wait, limits, Metrics())
        )
        await versions.load_first()
        api = RestApi(ModelRequests(versions, limits))

        async def ask(document):
            with memory.share() as share:
                answer = await api.answer(
                    RequestTarget("predict", "wide", None), Body(document), share
                )
                if not isinstance(answer, str):
                    answer = b"".join([part async for part in answer]).decode()
                return json.loads(answer)

        result = await scenario(ask, memory)
        await versions.close()
        return result

    return asyncio.run(run())


def _status(error):
    return error.value.status


def test_what_was_read_out_of_a_body_counts_until_the_answer(path):
    """Before, a body counted only until it had come: any number of them could wait."""

    async def scenario(ask, memory):
        first = asyncio.ensure_future(ask({"signature_name": "repeat", "instances": ["a" * 5000]}))
        while memory.held < 5000:
            await asyncio.sleep(0.01)
        with pytest.raises(RequestError, match="memory is full") as error:
            await ask({"signature_name": "repeat", "instances": ["a" * 5000]})
        assert _status(error) == 429
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return memory.held

    held = _run(path, scenario, batch_wait=PATIENCE, max_buffered=8000)
    assert held == 0


def test_an_answer_that_would_be_too_large_is_not_computed(path):
    async def scenario(ask, memory):
        answer = await ask({"instances": [[0, 1]] * 2})
        with pytest.raises(RequestError, match="at most 100000 bytes .* 120000") as error:
            await ask({"instances": [[0] * 10] * 3})
        return answer, _status(error)

    answer, status = _run(path, scenario, max_answer=100_000)
    assert np.argmax(answer["predictions"], axis=-1).tolist() == [[0, 1], [0, 1]]
    assert status == 413


def test_an_answer_whose_size_only_shows_afterwards_is_refused(path):
    async def scenario(ask, memory):
        with pytest.raises(RequestError, match="at most 100000 bytes .* 200000") as error:
            await ask({"signature_name": "repeat", "instances": ["a"]})
        return _status(error)

    assert _run(path, scenario, max_answer=100_000) == 413


def test_a_text_of_too_many_tokens_is_refused(path):
    async def scenario(ask, memory):
        with pytest.raises(RequestError, match="1000 tokens .* about 2503 in row 1") as error:
            await ask({"signature_name": "repeat", "instances": ["a", "a" * 10_000]})
        return _status(error)

    assert _run(path, scenario, max_tokens=1000) == 413


def test_a_text_counts_once_for_each_of_its_choices(path):
    async def scenario(ask, memory):
        row = {"text": "a" * 400, "choices": ["b"] * 9}
        answer = await ask({"signature_name": "choose", "instances": [row]})
        row["choices"] *= 2
        with pytest.raises(RequestError, match="1000 tokens .* about 1859 in row 0") as error:
            await ask({"signature_name": "choose", "instances": [row]})
        return answer, _status(error)

    answer, status = _run(path, scenario, max_tokens=1000)
    assert answer["predictions"] == [[401] * 9]
    assert status == 413


def test_a_large_answer_over_http(path):
    """In parts; refused where it is too large, and while others fill the memory."""
    flags = ["--max_answer_bytes=1000000", "--max_buffered_bytes=1100000"]
    with ServerProcess(path, *flags) as server:
        status, answer = server.predict({"instances": [list(range(200))]})
        assert status == 200
        assert np.argmax(answer["predictions"][0], axis=-1).tolist() == list(range(200))
        status, answer = server.predict({"instances": [[0] * 300]})
        assert status == 413 and "at most 1000000 bytes" in answer["error"]
        status, headers, _ = server.ask(
            "POST", "/v1/models/tiny:predict", b'{"instances": [[0' + b" " * 1_100_000 + b"]]}"
        )
        assert (status, headers["Retry-After"]) == (429, "1")
        assert server.predict({"inputs": [[7]]})[0] == 200
        status, printed = server.stop()
    assert status == 0 and "Traceback" not in printed, printed


def test_only_other_operations_need_all_of_tensorflow_text(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow_text", raising=False)
    own = {"FastWordpieceTokenizeWithOffsets", "FastBertNormalize", "BertTf>VarlenAttention"}
    register_text_operations({"MatMul", *own})
    assert "tensorflow_text" not in sys.modules
    register_text_operations({"WhitespaceTokenizeWithOffsets", *own})
    assert "tensorflow_text" in sys.modules
