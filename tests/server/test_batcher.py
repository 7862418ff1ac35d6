"""Which rows are computed together, and what each request gets."""

import asyncio
import threading

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.server.batcher import Batcher
from bert_tf.server.errors import RequestError
from bert_tf.server.limits import Limits
from bert_tf.server.metrics import Metrics
from bert_tf.server.served_model import ServedModel
from tests.server.process import PATIENCE


class TextFacts(tf.Module):
    """Of each text its bytes, and its words: as many as there happen to be, with their count."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def facts(self, text):
        words = tf.strings.split(text)
        tf.debugging.assert_none_equal(text, "bad", message="a bad text")
        return {
            "length": tf.strings.length(text),
            "word": words.to_tensor(""),
            "word_count": tf.cast(words.row_lengths(), tf.int32),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def words(self, text):
        return {"words": tf.strings.split(text).to_tensor("")}


class WatchedModel(ServedModel):
    """A model that writes its batches down, and can be kept from computing."""

    def __init__(self, path):
        super().__init__(path)
        self.padding_free = True
        self.batches = []
        self.free = threading.Event()
        self.free.set()

    def run(self, signature, arrays):
        self.batches.append(arrays["text"].tolist())
        assert self.free.wait(PATIENCE)
        return super().run(signature, arrays)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("facts") / "1"
    module = TextFacts()
    tf.saved_model.save(module, str(path), {"serving_default": module.facts, "words": module.words})
    return path


@pytest.fixture(scope="module")
def loaded(path):
    return WatchedModel(path)


@pytest.fixture
def model(loaded):
    loaded.batches.clear()
    yield loaded
    loaded.free.set()


def _batcher(model, token_budget=1000, batch_wait=0.0, max_waiting=100, request_timeout=PATIENCE):
    limits = Limits(max_waiting=max_waiting, request_timeout=request_timeout)
    return Batcher(model, token_budget, batch_wait, limits, Metrics())


def _ask(batcher, model, *texts, signature="serving_default"):
    array = np.array([text.encode() for text in texts], object)
    return asyncio.ensure_future(
        batcher.run(model.signatures[signature], {"text": array}, len(texts))
    )


async def _until(condition):
    for _ in range(100 * PATIENCE):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("It did not happen")


async def _busy(batcher, model):
    """A request that the model computes until `model.free` is set."""
    model.free.clear()
    first = _ask(batcher, model, "first")
    await _until(lambda: model.batches)
    return first


def test_what_waits_is_computed_together(model):
    async def scenario():
        batcher = _batcher(model)
        first = await _busy(batcher, model)
        others = [_ask(batcher, model, *texts) for texts in (["a b c", "d"], ["e f"])]
        await _until(lambda: batcher.waiting == 2)
        model.free.set()
        answers = await asyncio.gather(first, *others)
        await batcher.close()
        return answers

    _, two, one = asyncio.run(scenario())
    assert model.batches == [[b"first"], [b"a b c", b"d", b"e f"]]
    # As if each had been alone: no padding of the other's.
    assert two["word"].tolist() == [[b"a", b"b", b"c"], [b"d", b"", b""]]
    assert one["word"].tolist() == [[b"e", b"f"]]
    assert two["length"].tolist() == [5, 1]


def test_a_large_request_is_cut_and_the_small_ones_are_served_meanwhile(model):
    async def scenario():
        batcher = _batcher(model, token_budget=16)  # 4 rows of 1 to 4 bytes
        first = await _busy(batcher, model)
        large = _ask(batcher, model, *(f"l{n}" for n in range(10)))
        small = [_ask(batcher, model, f"s{n}") for n in range(2)]
        await _until(lambda: batcher.waiting == 3)
        model.free.set()
        answers = await asyncio.gather(first, large, *small)
        await batcher.close()
        return answers

    _, large, *small = asyncio.run(scenario())
    assert {b"s0", b"s1"} <= set(model.batches[1])
    assert max(len(batch) for batch in model.batches) <= 5
    assert sorted(text for batch in model.batches[1:] for text in batch) == sorted(
        [*(b"l%d" % n for n in range(10)), b"s0", b"s1"]
    )
    assert large["word"].tolist() == [[b"l%d" % n] for n in range(10)]
    assert [answer["word"].tolist() for answer in small] == [[[b"s0"]], [[b"s1"]]]


def test_padding_counts_where_it_costs(model):
    async def scenario():
        batcher = _batcher(model, token_budget=120)
        first = await _busy(batcher, model)
        others = [_ask(batcher, model, text) for text in ("x" * 200, "a", "b", "c")]
        await _until(lambda: batcher.waiting == 4)
        model.free.set()
        await asyncio.gather(first, *others)
        await batcher.close()
        return [len(batch) for batch in model.batches]

    assert asyncio.run(scenario()) == [1, 4]
    model.batches.clear()
    model.padding_free = False
    try:
        assert asyncio.run(scenario()) == [1, 2, 2]  # 2 rows of 53 tokens, 2 of 3
    finally:
        model.padding_free = True


def test_one_bad_row_spoils_only_its_request(model):
    async def scenario():
        batcher = _batcher(model)
        first = await _busy(batcher, model)
        others = [_ask(batcher, model, text) for text in ("good", "bad", "fine")]
        await _until(lambda: batcher.waiting == 3)
        model.free.set()
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        await batcher.close()
        return answers

    _, good, bad, fine = asyncio.run(scenario())
    assert good["word"].tolist() == [[b"good"]] and fine["word"].tolist() == [[b"fine"]]
    assert isinstance(bad, RequestError) and bad.status == 400
    assert "a bad text" in bad.message


def test_answers_that_depend_on_their_neighbours_are_computed_alone(model):
    async def scenario():
        batcher = _batcher(model, token_budget=20)
        first = await _busy(batcher, model)
        others = [
            _ask(batcher, model, *texts, signature="words") for texts in (["a b c", "d"], ["e f"])
        ]
        await _until(lambda: batcher.waiting == 2)
        model.free.set()
        answers = await asyncio.gather(first, *others)
        with pytest.raises(RequestError, match="Send fewer rows"):
            await _ask(batcher, model, *["a b c d e f g"] * 10, signature="words")
        await batcher.close()
        return answers

    _, two, one = asyncio.run(scenario())
    assert model.batches[1:] == [[b"a b c", b"d"], [b"e f"]]
    assert two["words"].shape == (2, 3) and one["words"].shape == (1, 2)


def test_deadline_full_queue_and_clients_that_left(model):
    async def scenario():
        batcher = _batcher(model, max_waiting=1, request_timeout=0.2)
        first = await _busy(batcher, model)
        second = _ask(batcher, model, "second")
        await _until(lambda: batcher.waiting == 1)
        with pytest.raises(RequestError, match="already waiting") as full:
            await _ask(batcher, model, "third")
        assert full.value.status == 429
        for late in (first, second):
            with pytest.raises(RequestError, match="No answer within") as error:
                await late
            assert error.value.status == 504
        gone = _ask(batcher, model, "gone")
        await _until(lambda: batcher.waiting == 1)
        gone.cancel()
        await _until(lambda: batcher.waiting == 0)
        closing = asyncio.ensure_future(batcher.close())
        await asyncio.sleep(0)
        assert not closing.done()  # while the first batch is computed
        model.free.set()
        await closing

    asyncio.run(scenario())
    assert model.batches == [[b"first"]]


def test_a_lone_request_waits_for_company_until_the_budget_is_reached(model):
    async def scenario():
        batcher = _batcher(model, token_budget=6, batch_wait=PATIENCE)
        answers = await asyncio.gather(_ask(batcher, model, "a"), _ask(batcher, model, "b"))
        await batcher.close()
        return answers

    asyncio.run(scenario())
    assert model.batches == [[b"a", b"b"]]
