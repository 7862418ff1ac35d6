"""`predict` on text: one trace for all sizes, no dataset, and always the weights of now."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.training_model import TrainingModel
from tests.conformance.task import TEXTS, assert_same, make
from tests.conformance.tasks import TASKS, tasks


@pytest.fixture
def steps(monkeypatch):
    """The models of which Python has run `predict_step`, each time that it did."""
    steps = []
    original = TrainingModel.predict_step

    def predict_step(self, data):
        steps.append(self)
        return original(self, data)

    monkeypatch.setattr(TrainingModel, "predict_step", predict_step)
    return steps


def test_one_trace_for_all_sizes(steps):
    model = make(TASKS["text classification"])
    for count in (1, 3, 8):
        for length in (1, 2, 5, 9, 14):
            logits = model.predict(["good " * length] * count, verbose=0)
            assert logits.shape == (count, 2)
    assert steps == [model]


@tasks("text")
def test_no_dataset_and_one_trace(name, steps, monkeypatch):
    """What a task answers with, for all its examples and then for some of them."""

    def refused(*args, **kwargs):
        raise AssertionError("a dataset was made")

    task = TASKS[name]
    model = make(task)
    for method in ("map", "range", "from_tensor_slices", "from_generator"):
        monkeypatch.setattr(tf.data.Dataset, method, refused)
    task.answers(model, task.question)
    traced = len(steps)
    task.answers(model, task.question, token_budget=20)
    assert len(steps) == traced <= 1 + (name == "late interaction")  # queries and documents


def test_equal_to_keras():
    """The numbers of the same batch are the same bit for bit."""
    model = make(TASKS["text classification"])
    tokens = {name: values.numpy() for name, values in model.tokenize(TEXTS).items()}
    expected = model.predict(tokens, batch_size=len(TEXTS), verbose=0)
    np.testing.assert_array_equal(np.sort(model.predict(TEXTS, verbose=0), 0), np.sort(expected, 0))


def _fit(model, tmp_path):
    model.fit(TEXTS, [0] * len(TEXTS), verbose=0)


def _load_weights(model, tmp_path):
    other = make(TASKS["text classification"], seed=5)
    other.save_weights(tmp_path / "other.weights.h5")
    model.load_weights(tmp_path / "other.weights.h5")


def _enable_lora(model, tmp_path):
    model.enable_lora(rank=2)
    for variable in model.trainable_variables:
        variable.assign(variable + 0.5)


def _merge_lora(model, tmp_path):
    _enable_lora(model, tmp_path)
    model.predict(TEXTS, verbose=0)
    model.merge_lora()


CHANGES = {
    "fit": _fit,
    "load_weights": _load_weights,
    "assign": lambda model, _: model.classifier.kernel.assign(model.classifier.kernel * 2.0),
    "set_weights": lambda model, _: model.set_weights([w * 0.5 for w in model.get_weights()]),
    "enable_lora": _enable_lora,
    "merge_lora": _merge_lora,
    "quantize": lambda model, _: model.quantize("int8"),
    "prune_heads": lambda model, _: model.prune_heads({0: [0]}),
    "padding_free": lambda model, _: setattr(model.backbone, "padding_free", False),
    "jit_compile": lambda model, _: model.compile(jit_compile=True),
    "prepack_for_inference": lambda model, _: model.prepack_for_inference(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_answers_with_the_weights_of_now(change, tmp_path):
    model = make(TASKS["text classification"])
    before = model.predict(TEXTS, verbose=0)
    CHANGES[change](model, tmp_path)
    after = model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(after, model(tf.constant(TEXTS)), atol=1e-5)
    if change not in ("padding_free", "jit_compile", "prepack_for_inference"):  # the same numbers
        assert np.abs(after - before).max() > 1e-3
    model.run_eagerly = True
    assert_same(model.predict(TEXTS, verbose=0), after)


@pytest.mark.parametrize("name", ["text classification", "token classification", "features"])
def test_eight_threads(name, steps):
    """They call a model that has never been called, and get the same answers as one thread."""
    task = TASKS[name]
    model, begin, found = make(task), threading.Barrier(8), {}

    def ask(number):
        begin.wait()
        found[number] = [task.answers(model, task.question) for _ in range(3)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(steps) == 1
    expected = task.answers(model, task.question)
    assert len(found) == 8
    for answers in found.values():
        for answer in answers:
            assert_same(answer, expected, tolerance=0)


def test_callbacks(capsys):
    """Keras's callbacks see every batch, and may stop; its bar counts batches."""

    class Recorder(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def on_predict_begin(self, logs=None):
            self.seen.append("begin")

        def on_predict_batch_end(self, batch, logs=None):
            self.seen.append((batch, len(logs["outputs"])))
            self.model.stop_predicting = len(self.seen) == 3

        def on_predict_end(self, logs=None):
            self.seen.append("end")

    model = make(TASKS["text classification"])
    texts = [*TEXTS, *TEXTS, "good film"]
    options = {"batch_size": len(TEXTS), "verbose": 0}
    expected = model.predict(texts[: 2 * len(TEXTS)], verbose=0)
    recorder = Recorder()
    found = model.predict(texts, callbacks=[recorder], **options)
    assert recorder.seen == ["begin", (0, len(TEXTS)), (1, len(TEXTS)), "end"]
    assert len(found) == 2 * len(TEXTS) and len(expected) == len(found)
    capsys.readouterr()
    model.predict(texts, batch_size=len(TEXTS), verbose=1)
    assert "3/3" in capsys.readouterr().out
    model.predict(texts, batch_size=len(TEXTS), verbose=0)
    assert capsys.readouterr().out == ""


def test_arrays_after_the_texts_keep_their_shape():
    """What a task is given with its texts has a known size, which layers may need."""
    from bert_tf.inputs.token_rows import feature_specs

    features = {
        "token_ids": np.zeros([3, 2, 7], np.int32),
        "age": np.zeros([3, 4], np.float32),
        "is_query": np.zeros([3], bool),
    }
    specs = feature_specs(features, {"age": None})
    assert {name: spec.shape.as_list() for name, spec in specs.items()} == {
        "age": [None, 4],
        "is_query": [None],
        "token_ids": [None, 2, None],
    }
    assert feature_specs(features, (), is_static=True)["token_ids"].shape.as_list() == [3, 2, 7]
