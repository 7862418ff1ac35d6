"""`predict` on text: one trace for all sizes, no dataset, and always the weights of now."""

import collections
import contextlib
import dataclasses
import functools
import random
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks as private

from bert_tf.errors import ConfigError, DataError
from bert_tf.inputs.batches import by_length
from bert_tf.inputs.token_rows import FewTexts
from bert_tf.training.traced_steps import Predictor
from bert_tf.training.training_model import TrainingModel
from tests.conformance.task import ONE_BLOCK, TEXTS, assert_same, make
from tests.conformance.tasks import TASKS, tasks

MOST_OPS = 16  # that run one by one in a call: functions count as one


@contextlib.contextmanager
def op_callbacks(function):
    """Calls a function for every op that runs, by TensorFlow's private hook."""
    private.add_op_callback(function)
    try:
        yield
    finally:
        private.remove_op_callback(function)


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


@pytest.fixture
def outputs(monkeypatch):
    """What predictors returned, and for what: features, or texts in one graph, and outputs."""
    found = []
    from_tensors, from_texts = Predictor.tensors, Predictor.of_texts

    def tensors(self, features, *args, **kwargs):
        outputs = from_tensors(self, features, *args, **kwargs)
        if tf.executing_eagerly():
            found.append((features, tf.nest.map_structure(np.array, outputs)))
        return outputs

    def of_texts(self, texts):
        count = len(found)
        order, outputs = from_texts(self, texts)
        del found[count:]  # if it runs eagerly
        found.append((texts, tf.nest.map_structure(np.array, outputs)))
        return order, outputs

    monkeypatch.setattr(Predictor, "tensors", tensors)
    monkeypatch.setattr(Predictor, "of_texts", of_texts)
    return found


@functools.lru_cache(maxsize=1)
def shared(name):
    """A model of a task, for all tests of it, which come one after the other."""
    return make(TASKS[name], config=ONE_BLOCK)


@tasks("text", few=True)
def test_eight_threads(name, steps):
    """They call a model that has never been called, and get the same answers as one thread."""
    shared.cache_clear()
    task, model = TASKS[name], shared(name)
    begin, found = threading.Barrier(8), {}

    def ask(number):
        begin.wait()
        found[number] = [task.answers(model, task.question) for _ in range(2)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(steps) <= 1 + (name == "late interaction")  # of queries and of documents
    expected = task.answers(model, task.question)
    assert len(found) == 8
    for answers in found.values():
        for answer in answers:
            assert_same(answer, expected, tolerance=0)


@tasks("text")
def test_no_graph_is_made_per_call(name, monkeypatch):
    """Nothing is traced for other sizes, no dataset is made, and few ops run one by one."""
    task, model, made, ops = TASKS[name], shared(name), [], []
    for token_budget in (None, 20):  # one batch from the strings on, and several
        task.answers(model, task.question, token_budget=token_budget)
    original = tf.Graph.__init__

    def init(self, *args, **kwargs):
        made.append(type(self))
        original(self, *args, **kwargs)

    def count(op_type, *args, graph=None, **kwargs):
        ops.append(op_type)

    monkeypatch.setattr(tf.Graph, "__init__", init)
    task.answers(model, task.question, token_budget=20)
    assert not made
    with op_callbacks(count):
        task.answers(model, task.question)
    assert len(ops) <= MOST_OPS, collections.Counter(ops)


@tasks("text", few=True)
def test_equal_to_keras(name, outputs):
    """The numbers of the same batch are the same bit for bit."""
    task, model = TASKS[name], shared(name)
    task.answers(model, task.question, token_budget=20)  # which makes batches of few texts, too
    assert outputs
    for features, values in outputs:
        if "seed" not in features:  # a text is not written by Keras's `predict`
            expected = keras.Model.predict_on_batch(model, features)
            assert_same(values, expected, tolerance=0)


@tasks("text")
def test_every_task_answers_with_the_weights_of_now(name, outputs):
    task, model = TASKS[name], shared(name)

    def found():
        outputs.clear()
        task.answers(model, task.question)
        return [values for _, values in outputs]

    before = found()
    for variable in model.trainable_variables:
        variable.assign(variable[::-1])
    after = found()
    pairs = zip(*map(tf.nest.flatten, (before, after)))
    assert not all(np.array_equal(*pair) for pair in pairs)
    model.run_eagerly = True
    assert_same(after, found())


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("text classification", [["the film is good"]]),
        ("text classification", [["good", "héllo ƃ", "the film is good", "", "it rains"]]),
        ("features", [["good", "a good film", "it rains"]]),
        ("pair classification", [["a good film", "no"], ["it rains", "yes"]]),
    ],
)
def test_few_examples_are_computed_in_one_graph(name, columns, monkeypatch, steps):
    """They have the outputs of their batch, bit for bit, and no rows of tokens are made."""
    model = make(TASKS[name], config=ONE_BLOCK)
    texts = tuple(columns) if len(columns) > 1 else columns[0]
    tokens = model.preprocessor.tokenizer(*columns, max_length=model.max_sequence_length)
    order = by_length(np.count_nonzero(tokens["padding_mask"], axis=1))
    features = {name: tf.gather(rows, order) for name, rows in tokens.items()}
    expected = keras.Model.predict_on_batch(model, features)[np.argsort(order)]
    many = model.predict(texts, verbose=0, token_budget=10)
    steps.clear()
    monkeypatch.setattr(FewTexts, "batch", None)
    assert_same(model.predict(texts, verbose=0), expected, tolerance=0)
    assert_same(model.predict(texts, verbose=0, batch_size=8), expected, tolerance=0)
    assert not steps  # the network's trace is that of batches
    assert_same(many, expected)
    with pytest.raises(ConfigError, match="batch_size` must be at least 1"):
        model.predict(texts, verbose=0, batch_size=0)
    with pytest.raises(DataError, match="UTF-8"):
        model.predict(tuple([b"\xff"] for _ in columns), verbose=0)


# Such as need several windows, or have no words.
_LONG = " ".join(random.Random(0).choices(["the", "a", "good", "bad", "film", "it"], k=60))
REQUESTS = ["The film is good.", "Héllo ƃ, it rains", "", _LONG]


@pytest.mark.parametrize("text", REQUESTS)
def test_spans_of_one_text_are_those_of_batches(text):
    model = shared("token classification")
    assert model.tag(text) == model.tag(text, batch_size=2) == model.tag([text, "no"])[0]


@pytest.mark.parametrize("context", REQUESTS)
def test_answers_to_one_question_are_those_of_batches(context):
    model = shared("question answering")

    def found(batch_size):
        (selection,) = model.select(["Is it?"], [context], batch_size=batch_size)
        answer = model.answer("Is it?", context, batch_size=batch_size)
        n_best = map(dataclasses.astuple, selection.n_best)
        values = tf.nest.flatten([*n_best, selection.best, answer])
        scores = [value for value in values if isinstance(value, float)]
        return [value for value in values if not isinstance(value, float)], scores

    (one, scores), (several, expected) = found(None), found(2)
    assert one == several and scores == pytest.approx(expected, rel=1e-4)


def test_called_with_text(steps):
    """The graph of `predict` computes it, but not where the call itself matters."""
    model, texts = make(TASKS["text classification"], config=ONE_BLOCK), tf.constant(TEXTS)
    expected = model(model.tokenize(TEXTS))
    assert not steps
    assert_same(model(texts).numpy(), expected.numpy())
    assert_same(model(TEXTS[:2], training=False).numpy(), expected[:2].numpy())
    assert steps == [model]
    with tf.GradientTape() as tape:
        recorded = model(texts)
    assert_same(recorded.numpy(), expected.numpy())
    assert tape.gradient(recorded, model.classifier.kernel) is not None
    assert tf.function(model)(texts).shape == expected.shape
    assert steps == [model]


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
    np.testing.assert_allclose(after, model(model.tokenize(TEXTS)), atol=1e-5)
    np.testing.assert_allclose(after, model(tf.constant(TEXTS)), atol=1e-5)
    if change not in ("padding_free", "jit_compile", "prepack_for_inference"):  # the same numbers
        assert np.abs(after - before).max() > 1e-3
    model.run_eagerly = True
    assert_same(model.predict(TEXTS, verbose=0), after)


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
