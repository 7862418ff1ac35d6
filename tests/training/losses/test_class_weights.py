"""Keras's `class_weight`: right in every task whose examples have one class, else refused."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import BertBackbone, BertTokenizer
from bert_tf.adapt.distillation_model import DistillationModel
from bert_tf.errors import UserError
from bert_tf.tasks.text_classification.cached_features import ClassifierHead
from bert_tf.training.losses.sparse_crossentropy import class_weights_by_id

TEXTS, OTHERS = ["good film", "bad film", "the good.", "a b c"], ["the", "bad", "film", "good"]
LABELS = np.array([0, 2, 2, 1])
TOKENS = {"token_ids": np.ones([2, 3], np.int32)}


@pytest.fixture(scope="module")
def make(tiny_config, tiny_vocabulary):
    config = dataclasses.replace(
        tiny_config, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )

    def make(name, **options):
        keras.utils.set_random_seed(3)
        if name == "BertPretrainer":
            return bert_tf.BertPretrainer(BertBackbone(config))
        tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
        return getattr(bert_tf, name)(BertBackbone(config), tokenizer=tokenizer, **options)

    return make


def expected_loss(logits, labels, weights):
    """Σ w·l / n in float64."""
    logits = np.asarray(logits, np.float64)
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(labels)), labels]
    return np.mean(np.asarray(weights)[labels] * losses)


def loss_of_fit(model, x, y, class_weight, **compiled):
    model.compile("sgd", run_eagerly=True, **compiled)
    history = model.fit(x, y, class_weight=class_weight, verbose=0).history
    return history["loss"][0]


BALANCED = [4 / 3, 4 / 3, 4 / 6]  # n / (C * count)


@pytest.mark.parametrize(
    "class_weight, weights",
    [
        ({2: 3.0}, [1, 1, 3]),
        ({"x": 0.5, "y": 0.0}, [0.5, 0, 1]),
        ([1.0, 0.5, 2.0], [1, 0.5, 2]),
        ("balanced", BALANCED),
    ],
)
def test_of_texts(make, class_weight, weights):
    model = make("BertTextClassifier", labels=["x", "y", "z"])
    tokens = model.tokenize(TEXTS)
    expected = expected_loss(model(tokens), LABELS, weights)
    x = TEXTS if "x" in class_weight else tokens
    received = loss_of_fit(model, x, LABELS, class_weight)
    assert received == pytest.approx(expected, rel=1e-5)


def test_balanced_weights_are_of_the_examples_to_train_on(make):
    """Not of those that are held out; also for labels by name and one-hot."""
    model = make("BertTextClassifier", labels=["x", "y", "z"])
    expected = expected_loss(model(model.tokenize(TEXTS)), LABELS, BALANCED)
    model.compile("sgd", loss="categorical_crossentropy", run_eagerly=True)
    before = model.get_weights()
    for texts, labels, options in (
        (TEXTS + OTHERS, np.eye(3)[[*LABELS, 0, 0, 0, 1]], {"validation_split": 0.5}),
        (TEXTS, np.eye(3)[LABELS], {}),
    ):
        model.set_weights(before)
        logs = model.fit(texts, labels, class_weight="balanced", verbose=0, **options).history
        assert logs["loss"][0] == pytest.approx(expected, rel=1e-5)
    model.set_weights(before)
    received = loss_of_fit(model, TEXTS, [["x", "y", "z"][i] for i in LABELS], "balanced")
    assert received == pytest.approx(expected, rel=1e-5)
    batches = tf.data.Dataset.from_tensors((TEXTS, LABELS))
    with pytest.raises(UserError, match="`class_weight='balanced'` needs"):
        model.fit(batches, class_weight="balanced", verbose=0)


def test_of_one_batch(make):
    model = make("BertTextClassifier", num_classes=3)
    tokens = model.tokenize(TEXTS)
    expected = expected_loss(model(tokens), LABELS, [1, 1, 3])
    model.compile("sgd", run_eagerly=True)
    received = model.train_on_batch(tokens, LABELS, class_weight={2: 3.0})
    assert received == pytest.approx(expected, rel=1e-5)


def test_of_next_sentences(make):
    model = make("BertNextSentencePredictor")
    labels = np.array([0, 1, 1, 0])
    tokens = model.tokenize(TEXTS, OTHERS)
    expected = expected_loss(model(tokens), labels, [2, 1])
    received = loss_of_fit(model, tokens, labels, {0: 2.0})
    assert received == pytest.approx(expected, rel=1e-5)


def test_of_pairs_for_sentence_vectors(make):
    model = make("BertSentenceEncoder")
    model.compile("sgd", objective="classification", run_eagerly=True)
    tokens = model.tokens_of((tf.constant(TEXTS), tf.constant(OTHERS)))
    expected = expected_loss(model.objective.outputs(model(tokens)), LABELS, [1, 1, 3])
    history = model.fit(tokens, LABELS, class_weight={2: 3.0}, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_of_a_head_alone_and_of_a_student(make):
    model = make("BertTextClassifier", labels=["x", "y", "z"])
    tokens = model.tokenize(TEXTS)
    expected = expected_loss(model(tokens), LABELS, [1, 1, 3])
    features = np.asarray(model.pooled(tokens))
    distillation = DistillationModel(
        model, make("BertTextClassifier", labels=["x", "y", "z"]), logits_weight=0.0
    )
    before = model.get_weights()
    for trained, x in ((ClassifierHead(model), features), (distillation, tokens)):
        model.set_weights(before)
        received = loss_of_fit(trained, x, LABELS, {"z": 3.0})
        assert received == pytest.approx(expected, rel=1e-5)
        model.set_weights(before)
        balanced = loss_of_fit(trained, x, LABELS, "balanced")
        model.set_weights(before)
        assert balanced == pytest.approx(loss_of_fit(trained, x, LABELS, BALANCED), rel=1e-5)


@pytest.mark.parametrize(
    "name, options, compiled",
    [
        ("BertTokenClassifier", {"labels": ["O", "B-X"]}, {}),
        ("BertTokenClassifier", {"labels": ["O", "B-X"], "use_crf": True}, {}),
        ("BertMultipleChoice", {}, {}),
        ("BertQuestionAnswerer", {"doc_stride": 4, "max_length": 16}, {}),
        ("BertMaskedLM", {}, {}),
        ("BertPretrainer", {}, {}),
        ("BertTextClassifier", {"problem_type": "regression"}, {}),
        ("BertTextClassifier", {"problem_type": "multi_label_classification"}, {}),
        ("BertSentenceEncoder", {}, {"objective": "cosine"}),
        ("BertSentenceEncoder", {}, {"loss": "mse"}),
    ],
)
def test_refused_where_an_example_has_no_class(make, name, options, compiled):
    model = make(name, **options)
    model.compile("sgd", **compiled)
    is_number = name == "BertMultipleChoice" or compiled.get("objective") == "cosine"
    is_number |= options.get("problem_type") == "regression"
    width = 2 if options.get("problem_type") == "multi_label_classification" else 3
    y = np.zeros([2] if is_number else [2, width], np.int32)
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(UserError, match="`class_weight` must be left out"):
            train(TOKENS, y, class_weight={0: 0.0, 1: 2.0})
    with pytest.raises(UserError, match="`class_weight` must be left out"):
        model.fit(TOKENS, y, class_weight="balanced")


@pytest.mark.parametrize(
    "class_weight, message",
    [
        ({3: 1.0}, "Received: 3"),
        ({"w": 1.0}, "Received: 'w'"),
        ({0: -1.0}, r"class_weight\[0\]=-1"),
        ({0: None}, "=None"),
        ({0: float("nan")}, "=nan"),
        ([1.0, 2.0], r"3 numbers.*class_weight=\[1.0, 2.0\]"),
        ("auto", "'balanced'.*class_weight='auto'"),
        (2.0, "class_weight=2.0"),
    ],
)
def test_wrong_weights(class_weight, message):
    with pytest.raises(UserError, match=message):
        class_weights_by_id(class_weight, 3, ["x", "y", "z"])
