"""A user's task whose model has an input of its own, as CONTRIBUTING.md describes it."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import tasks
from bert_tf.errors import UserError
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.task_spec import Examples, TaskInput, TaskSpec
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from tests.conformance.task import CLASSES, CONFIG, TEXTS, assert_same, tokenizer

SPEC = TaskSpec(
    "aged",
    "AgedModel",
    ("AgedModel",),
    module="tests.tasks.aged",
    preprocessor=f"{__name__}.AgedPreprocessor",
    examples=Examples(texts=(1,)),
    inputs={"age": TaskInput("float32", is_given=True)},
)
AGES = np.arange(len(TEXTS), dtype=np.float32)


class AgedPreprocessor(Preprocessor):
    def decode(self, values, rows, columns):
        return values[:, 0].tolist()


class AgedModel(DenseHeadModel):
    """Two classes, by the pooled vector plus the age."""

    __module__ = SPEC.model_module

    def __init__(self, backbone, tokenizer=None, max_length=None, **kwargs):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.classifier = self.dense_head(2)
        self.built = True

    def head(self, outputs, tokens, training=False):
        logits = tf.cast(self.classifier(outputs["pooled_output"]), tf.float32)
        return logits + tf.cast(tokens["age"], tf.float32)[:, tf.newaxis]


@pytest.fixture(autouse=True)
def registered():
    tasks.register_task(SPEC)
    yield
    tasks._register([])


def test_task_with_an_input_of_its_own():
    model = AgedModel(bert_tf.BertBackbone(CONFIG), tokenizer())
    model.compile("sgd", run_eagerly=True, gradient_accumulation_steps=2)
    tokens = dict(model.tokenize(TEXTS))
    expected = np.asarray(model({**tokens, "age": np.zeros_like(AGES)})) + AGES[:, np.newaxis]
    assert_same(model({**tokens, "age": AGES}), expected)
    assert_same(model((tf.constant(TEXTS), tf.constant(AGES))), expected)
    assert_same(model.predict((TEXTS, AGES), verbose=0), expected)
    dataset = tf.data.Dataset.from_tensor_slices(((TEXTS, AGES),)).batch(4)
    assert_same(model.predict(dataset, verbose=0), expected)
    assert_same(model.predict_decoded((TEXTS[0], 7)), expected[0, 0] + 7)
    assert len(model.predict(([], []), verbose=0)) == 0
    for x in ((TEXTS, AGES), {**tokens, "age": AGES}):
        model.fit(x, CLASSES, verbose=0)
    model.fit((TEXTS, AGES), CLASSES, token_budget=30, verbose=0)
    labelled = tf.data.Dataset.from_tensor_slices(((TEXTS, AGES), CLASSES)).batch(4)
    model.fit(labelled, verbose=0)
    model.fit(iter(labelled.as_numpy_iterator()), steps_per_epoch=1, verbose=0)


def test_windows_have_the_input_of_their_text():
    model = AgedModel(bert_tf.BertBackbone(CONFIG), tokenizer(), max_length=5)
    texts = [" ".join(["good film"] * 4), "bad"]
    difference = [
        model.predict((texts, ages), window_stride=2, verbose=0) for ages in ([0, 0], [3, 5])
    ]
    assert_same(difference[1] - difference[0], np.array([[3, 3], [5, 5]]))


@pytest.mark.parametrize(
    "x, message",
    [
        (TEXTS, r"must be a tuple, \(texts, age\). Received: list"),
        ((TEXTS, AGES[1:]), r"`age.shape` must have a row for every text"),
        ({"token_ids": np.full([2, 3], 5)}, "must hold age. Received: .'token_ids'"),
    ],
)
def test_wrong_inputs(x, message):
    model = AgedModel(bert_tf.BertBackbone(CONFIG), tokenizer())
    with pytest.raises(UserError, match=message):
        model.predict(x, verbose=0)


@pytest.mark.parametrize(
    "class_weight, message",
    [
        ({"old": 2.0}, "must be {class id: weight}: .* Received: class_weight={'old': 2.0}"),
        ("balanced", "must be {class id: weight}"),
        ({1: -2.0}, r"class_weight\[1\]=-2.0"),
    ],
)
def test_class_weights_without_classes_are_by_id(class_weight, message):
    model = AgedModel(bert_tf.BertBackbone(CONFIG), tokenizer())
    model.compile("sgd", run_eagerly=True)
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(UserError, match=message):
            train((TEXTS, AGES), CLASSES, class_weight=class_weight)


def test_class_weights_of_declared_classes_are_by_name():
    model = AgedModel(bert_tf.BertBackbone(CONFIG), tokenizer())
    model.compile("sgd", run_eagerly=True)
    before, losses = model.get_weights(), []
    model.labels = ["young", "old"]
    for class_weight in ({1: 3.0}, {"old": 3.0}, None):
        model.set_weights(before)
        losses += model.fit((TEXTS, AGES), CLASSES, class_weight=class_weight, verbose=0).history[
            "loss"
        ]
    assert losses[0] == losses[1] != losses[2]


def test_inputs_that_no_task_declares_are_refused():
    model = bert_tf.BertTextClassifier(bert_tf.BertBackbone(CONFIG), tokenizer=tokenizer())
    with pytest.raises(UserError, match="Received: num_words. .*declare them in its spec"):
        model({**model.tokenize(TEXTS), "num_words": np.ones(len(TEXTS))})


def test_labels_of_a_dataset_that_are_strings_are_refused():
    model = AgedModel(bert_tf.BertBackbone(CONFIG), tokenizer())
    dataset = tf.data.Dataset.from_tensor_slices(((TEXTS, AGES), ["old"] * len(TEXTS))).batch(2)
    with pytest.raises(UserError, match="Labels in a dataset of this task must be numbers"):
        model.fit(dataset, verbose=0)
