"""`BertModelHandler` in a pipeline: the answers of the model's own method, whatever the batches."""

import pickle

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

from bert_tf.beam.model_handler import METHODS, BertModelHandler, Refused
from bert_tf.errors import UserError
from tests.conformance.task import PAIRS, TEXTS, assert_same, make
from tests.conformance.tasks import TASKS

TASK_OF_METHOD = {
    "encode": "sentence encoding",
    "classify": "text classification",
    "tag": "token classification",
    "answer": "question answering",
    "rerank": "pair classification",
}
OPTIONS = ["--direct_num_workers=1", "--direct_running_mode=in_memory", "--allow_unsafe_triggers"]


@pytest.fixture(scope="module")
def model_dirs(tmp_path_factory):
    """A directory with a model for each method."""
    directory = tmp_path_factory.mktemp("models")
    for method, name in TASK_OF_METHOD.items():
        make(TASKS[name]).save_pretrained(directory / method)
    return directory


def run(handler, elements):
    """The outputs of `RunInference` in this process."""
    _kept.clear()
    with beam.Pipeline(options=PipelineOptions(OPTIONS)) as pipeline:
        _ = pipeline | beam.Create(elements) | RunInference(handler) | beam.Map(_keep)
    return list(_kept)


_kept = []


def _keep(result):
    _kept.append(result)


@pytest.mark.parametrize("method", METHODS)
def test_answers_are_those_of_the_local_method(method, model_dirs):
    label = "LABEL_1" if method == "rerank" else None
    handler = BertModelHandler(
        str(model_dirs / method), method, token_budget=30, relevant_label=label
    )
    loaded = pickle.loads(pickle.dumps(handler)).load_model()
    model = loaded.model
    has_pairs = METHODS[method].texts == (2,)
    examples = list(zip(TEXTS, PAIRS)) if has_pairs else TEXTS
    if method == "answer":
        expected = model.answer(TEXTS, PAIRS)
    elif method == "rerank":
        expected = [one.scores[label] for one in model.classify((TEXTS, PAIRS))]
    else:
        expected = list(getattr(model, method)(TEXTS))
    received = handler.run_inference(examples, loaded)
    assert [result.example for result in received] == examples
    assert_same([result.inference for result in received], expected)


class Recorder(BertModelHandler):
    """Records the batches of Beam, and the rows and lengths of those that the model computes."""

    batches, computed = [], []

    def load_model(self):
        model = super().load_model()
        predict_step = model.model.predict_step

        def recorded(data):
            self.computed.append(tuple(data["token_ids"].shape))
            return predict_step(data)

        model.model.predict_step = recorded
        model.model.run_eagerly = True
        return model

    def run_inference(self, batch, model, inference_args=None):
        self.batches.append(list(batch))
        return super().run_inference(batch, model, inference_args)


def test_batches_have_at_most_the_budget(model_dirs):
    Recorder.batches.clear()
    Recorder.computed.clear()
    texts = [" ".join(["good"] * (1 + number % 9)) for number in range(60)] + ["film " * 90]
    handler = Recorder(str(model_dirs / "encode"), "encode", token_budget=50, batch_bytes=300)
    keyed = [((number, "key"), text) for number, text in enumerate(texts)]
    results = run(KeyedModelHandler(handler), keyed)
    assert sorted(key for key, _ in results) == [key for key, _ in keyed]
    assert all(result.example == texts[number] for (number, _), result in results)
    sizes = [sum(len(text) for text in batch) for batch in Recorder.batches]
    assert all(size <= 300 for size in sizes[:-1]) and sizes[-1] == 450  # alone, longer than all
    assert len(sizes) < 10 and all(Recorder.batches)
    assert all(rows * length <= 50 for rows, length in Recorder.computed)
    assert sum(rows for rows, _ in Recorder.computed) == len(texts)
    assert len(Recorder.computed) > len(sizes)


def test_a_refused_example_does_not_fail_its_batch(model_dirs):
    handler = BertModelHandler(str(model_dirs / "encode"), "encode")
    examples = ["good film", 7, None, ("two", "texts"), "a\ud800", "", b"bytes", "the film"]
    loaded = handler.load_model()
    results = handler.run_inference(examples, loaded)
    refused = [isinstance(result.inference, Refused) for result in results]
    assert refused == [False, True, True, True, True, False, True, False]
    assert "must be 1 text. Received: 7" in results[1].inference.error
    given = [results[number].inference for number in (0, 5, 7)]
    np.testing.assert_allclose(given, loaded.model.encode(["good film", "", "the film"]), atol=1e-5)


def test_an_error_of_the_model_is_that_of_one_example(model_dirs):
    handler = BertModelHandler(str(model_dirs / "encode"), "encode")
    loaded = handler.load_model()
    encode = loaded.model.encode

    def strict(texts, **options):
        if "bad" in texts:
            raise UserError("no bad texts")
        return encode(texts, **options)

    loaded.model.encode = strict
    results = handler.run_inference(["good", "film", "bad", "the", "a"], loaded)
    assert results[2].inference == Refused("no bad texts")
    assert sum(isinstance(result.inference, Refused) for result in results) == 1
    loaded.model.encode = lambda texts, **options: 1 / 0  # no error of an example
    with pytest.raises(ZeroDivisionError):
        handler.run_inference(["good"], loaded)


def test_single_texts_and_pairs_in_one_batch(model_dirs):
    handler = BertModelHandler(str(model_dirs / "classify"), "classify")
    examples = ["good", ("good", "film"), "bad", ("a", "b", "c")]
    loaded = handler.load_model()
    results = handler.run_inference(examples, loaded)
    expected = [loaded.model.classify(example) for example in examples[:3]]
    assert_same([result.inference for result in results[:3]], expected)
    assert "must be 1 or 2 texts" in results[3].inference.error


def test_what_cannot_rerank_is_refused(model_dirs, tmp_path):
    directory = str(model_dirs / "rerank")
    for label in (None, "relevant"):
        handler = BertModelHandler(directory, "rerank", relevant_label=label)
        with pytest.raises(UserError, match="`relevant_label` must be one of the classifier's"):
            handler.load_model()
    task = TASKS["text classification"]
    options = {"labels": None, "num_classes": 1, "problem_type": "regression"}
    make(task, **options).save_pretrained(tmp_path)
    handler = BertModelHandler(str(tmp_path), "rerank")
    loaded = handler.load_model()
    (result,) = handler.run_inference([("good", "film")], loaded)
    assert result.inference == pytest.approx(loaded.model.predict((["good"], ["film"]))[0, 0])
    handler = BertModelHandler(str(model_dirs / "encode"), "classify")
    with pytest.raises(UserError, match="must be trained before it is asked"):
        handler.load_model()


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
