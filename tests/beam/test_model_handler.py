"""`BertModelHandler` in a pipeline: the answers of the model's own method, whatever the batches."""

import pickle

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

import bert_tf
from bert_tf import tasks
from bert_tf.beam.model_handler import BertModelHandler, Refused
from bert_tf.errors import UserError
from bert_tf.inputs.batches import sorted_batches
from bert_tf.training import traced_steps
from tests.conformance.task import PAIRS, TEXTS, assert_same, make
from tests.conformance.tasks import TASKS

TASK_OF_METHOD = {
    "encode": "sentence encoding",
    "classify": "text classification",
    "tag": "token classification",
    "answer": "question answering",
    "rerank": "pair classification",
}
FULL = pytest.mark.full
OPTIONS = ["--direct_num_workers=1", "--direct_running_mode=in_memory", "--allow_unsafe_triggers"]


class Models:
    """A handler and its loaded model for each method, made when a test asks for them."""

    def __init__(self, directory):
        self.directory = directory
        self._loaded = {}

    def path(self, method) -> str:
        path = self.directory / method
        if not path.exists():
            make(TASKS[TASK_OF_METHOD[method]]).save_pretrained(path)
        return str(path)

    def loaded(self, method):
        if method not in self._loaded:
            label = "LABEL_1" if method == "rerank" else None
            options = {"token_budget": 30, "relevant_label": label}
            handler = BertModelHandler(self.path(method), method, **options)
            self._loaded[method] = handler, pickle.loads(pickle.dumps(handler)).load_model()
        return self._loaded[method]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("models"))


def run(handler, elements):
    """The outputs of `RunInference` in this process."""
    _kept.clear()
    with beam.Pipeline(options=PipelineOptions(OPTIONS)) as pipeline:
        _ = pipeline | beam.Create(elements) | RunInference(handler) | beam.Map(_keep)
    return list(_kept)


_kept = []


def _keep(result):
    _kept.append(result)


@pytest.mark.parametrize(
    "method",
    ["encode", "classify", "answer", *(pytest.param(m, marks=FULL) for m in ("tag", "rerank"))],
)
def test_answers_are_those_of_the_local_method(method, models):
    handler, loaded = models.loaded(method)
    model = loaded.model
    has_pairs = tasks.answers()[method][1].texts == (2,)
    examples = list(zip(TEXTS, PAIRS)) if has_pairs else TEXTS
    if method == "answer":
        expected = model.answer(TEXTS, PAIRS)
    elif method == "rerank":
        expected = [one.scores["LABEL_1"] for one in model.classify((TEXTS, PAIRS))]
    else:
        expected = list(getattr(model, method)(TEXTS))
    received = handler.run_inference(examples, loaded)
    assert [result.example for result in received] == examples
    assert_same([result.inference for result in received], expected)


class Recorder(BertModelHandler):
    """Records the batches of Beam."""

    batches = []

    def run_inference(self, batch, model, inference_args=None):
        self.batches.append(list(batch))
        return super().run_inference(batch, model, inference_args)


def test_batches_have_at_most_the_budget(models, monkeypatch):
    model, computed = models.loaded("encode")[1].model, []

    def recorded(rows, *arguments):
        batches = sorted_batches(rows, *arguments)
        computed.extend(rows.batch(numbers)["token_ids"].shape for numbers in batches)
        return batches

    monkeypatch.setattr(bert_tf.BertSentenceEncoder, "from_pretrained", lambda path: model)
    monkeypatch.setattr(traced_steps, "sorted_batches", recorded)
    Recorder.batches.clear()
    texts = [" ".join(["good"] * (1 + number % 9)) for number in range(60)] + ["film " * 90]
    handler = Recorder("model", "encode", token_budget=50, batch_bytes=300)
    keyed = [((number, "key"), text) for number, text in enumerate(texts)]
    results = run(KeyedModelHandler(handler), keyed)
    assert sorted(key for key, _ in results) == [key for key, _ in keyed]
    assert all(result.example == texts[number] for (number, _), result in results)
    sizes = [sum(map(len, batch)) for batch in Recorder.batches]
    assert all(size <= 300 for size in sizes[:-1]) and sizes[-1] == 450  # alone, longer than all
    assert len(sizes) < 10 and all(Recorder.batches)
    assert all(rows * length <= 50 for rows, length in computed)
    alone = [batch for batch in Recorder.batches if len(batch) == 1]  # not cut into batches
    assert sum(rows for rows, _ in computed) == len(texts) - len(alone)
    assert len(computed) > len(sizes)


def test_a_refused_example_does_not_fail_its_batch(models):
    handler, loaded = models.loaded("encode")
    examples = ["good film", 7, None, ("two", "texts"), "a\ud800", "", b"bytes", "the film"]
    results = handler.run_inference(examples, loaded)
    refused = [isinstance(result.inference, Refused) for result in results]
    assert refused == [False, True, True, True, True, False, True, False]
    assert "must be 1 text. Received: 7" in results[1].inference.error
    given = [results[number].inference for number in (0, 5, 7)]
    expected = loaded.model.encode(["good film", "", "the film"])
    np.testing.assert_allclose(given, expected, atol=1e-5)


def test_an_error_of_the_model_is_that_of_one_example(models, monkeypatch):
    handler, loaded = models.loaded("encode")
    encode = loaded.model.encode

    def strict(texts, **options):
        if "bad" in texts:
            raise UserError("no bad texts")
        return encode(texts, **options)

    monkeypatch.setattr(loaded.model, "encode", strict)
    results = handler.run_inference(["good", "bad", "the"], loaded)
    assert results[1].inference == Refused("no bad texts")
    assert sum(isinstance(result.inference, Refused) for result in results) == 1
    monkeypatch.setattr(loaded.model, "encode", lambda texts, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # which is not about an example
        handler.run_inference(["good"], loaded)


def test_single_texts_and_pairs_in_one_batch(models):
    handler, loaded = models.loaded("classify")
    examples = ["good", ("good", "film"), "bad", ("a", "b", "c")]
    results = handler.run_inference(examples, loaded)
    single, pair = loaded.model.classify(["good", "bad"]), loaded.model.classify(examples[1])
    expected = [single[0], pair, single[1]]
    assert_same([result.inference for result in results[:3]], expected)
    assert "must be 1 or 2 texts" in results[3].inference.error


def test_what_cannot_rerank_is_refused(models, tmp_path, monkeypatch):
    for label in (None, "relevant"):
        handler = BertModelHandler(models.path("rerank"), "rerank", relevant_label=label)
        with pytest.raises(UserError, match="`relevant_label` must be one of the classifier's"):
            handler.load_model()
    regression = make(TASKS["pair classification"], num_classes=1, problem_type="regression")
    monkeypatch.setattr(bert_tf.BertTextClassifier, "from_pretrained", lambda path: regression)
    handler = BertModelHandler(str(tmp_path), "rerank")
    (result,) = handler.run_inference([("good", "film")], handler.load_model())
    expected = regression.predict((["good"], ["film"]))[0, 0]
    assert result.inference == pytest.approx(expected)


def test_a_model_without_the_head_is_refused(models):
    with pytest.raises(UserError, match="must be trained before it is asked"):
        BertModelHandler(models.path("encode"), "classify").load_model()


@pytest.mark.parametrize(
    "options",
    [
        {"method": "summarize"},
        {"method": "encode", "token_budget": 0},
        {"method": "encode", "relevant_label": "good"},
    ],
)
def test_wrong_arguments(options):
    with pytest.raises(UserError, match="must be"):
        BertModelHandler("model", **options)


def test_a_real_model(minilm):
    handler = BertModelHandler(str(minilm), "encode", token_budget=24)
    texts = ["A quiet film.", "No.", "The acting is better than the script deserves."]
    loaded = handler.load_model()
    found = [result.inference for result in handler.run_inference(texts, loaded)]
    np.testing.assert_allclose(found, loaded.model.encode(texts), atol=1e-5)


@pytest.mark.full
def test_a_model_that_processes_share(models):
    handler = BertModelHandler(models.path("encode"), "encode", large_model=True)
    results = dict(run(KeyedModelHandler(handler), [(1, "good film"), (2, 7)]))
    expected = models.loaded("encode")[1].model.encode("good film")
    np.testing.assert_allclose(results[1].inference, expected, atol=1e-5)
    assert isinstance(results[2].inference, Refused)
