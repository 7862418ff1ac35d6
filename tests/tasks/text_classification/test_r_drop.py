"""R-Drop: two passes with different dropout, whose answers are to be the same."""

import dataclasses

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.tasks.text_classification.model import symmetric_divergence
from bert_tf.training import AdamWeightDecay, SparseCrossentropy
from tests.conformance.task import CONFIG, TEXTS, encoded

LABELS = np.array([0, 1, 1, 0, 1, 0], np.int32)
TOKENS = encoded(TEXTS)


def model_of(rate=0.3, **options):
    keras.utils.set_random_seed(3)
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), rate)
    backbone = bert_tf.BertBackbone(dataclasses.replace(CONFIG, **rates))
    return bert_tf.BertTextClassifier(backbone, **{"num_classes": 3, **options})


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def divergence(first, second):
    first, second = log_softmax(first), log_softmax(second)
    one = np.sum(np.exp(first) * (first - second), axis=1)
    return (one + np.sum(np.exp(second) * (second - first), axis=1)) / 2


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_divergence_against_numpy(dtype):
    first, second = np.random.default_rng(0).normal(size=[2, 5, 4], scale=3.0).astype(dtype)
    found = symmetric_divergence(first, second)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, divergence(first, second), rtol=1e-4)
    assert symmetric_divergence(first[:0], second[:0]).shape == (0,)
    np.testing.assert_array_equal(symmetric_divergence(first, first), np.zeros(5))


@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.full), 2])
def test_the_loss_against_numpy(parts):
    weights = np.array([1.0, 0.5, 2.0, 1.0, 0.0, 1.5], np.float32)
    model, expected = model_of(), []
    for rows in np.split(np.arange(6), parts):
        part = {name: values[rows] for name, values in TOKENS.items()}
        passes = [model(part, training=True).numpy() for _ in range(2)]
        assert np.abs(passes[0] - passes[1]).max() > 1e-3  # dropout is another one
        own = [-log_softmax(p)[np.arange(len(rows)), LABELS[rows]] for p in passes]
        expected.append(weights[rows] * (sum(own) / 2 + 4.0 * divergence(*passes)))
    model = model_of()  # again, with the same dropout
    loss = SparseCrossentropy()
    options = {"r_drop": 4.0, "gradient_accumulation_steps": parts}
    model.compile(AdamWeightDecay(1e-3), loss, ["accuracy"], **options)
    options = {"sample_weight": weights, "batch_size": 6, "shuffle": False, "verbose": 0}
    logs = model.fit(TOKENS, LABELS, **options).history
    assert logs["loss"][0] == pytest.approx(np.concatenate(expected).sum() / 6, rel=1e-4)
    assert "accuracy" in logs
    evaluated = model.evaluate(TOKENS, LABELS, verbose=0, return_dict=True)["loss"]
    plain = log_softmax(model.predict(TOKENS, verbose=0))[np.arange(6), LABELS]
    assert evaluated == pytest.approx(-plain.mean(), rel=1e-4)  # one pass


def test_without_dropout_it_is_the_plain_step():
    weights = []
    for r_drop in (0.0, 4.0):
        model = model_of(0.0)
        model.compile(keras.optimizers.SGD(0.5), r_drop=r_drop)
        model.train_on_batch(TOKENS, LABELS)
        weights.append(model.get_weights())
    for plain, dropped in zip(*weights, strict=True):
        np.testing.assert_allclose(dropped, plain, atol=1e-6)


def test_it_is_kept_in_files_and_can_be_switched_off(tmp_path):
    model = model_of()
    model.compile("sgd", r_drop=2.0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.r_drop == 2.0
    again.compile("sgd")
    assert again.r_drop == 0.0


@pytest.mark.parametrize(
    "options, r_drop",
    [
        ({}, -1.0),
        ({}, float("nan")),
        ({"problem_type": "multi_label_classification"}, 1.0),
        ({"num_classes": 1, "problem_type": "regression"}, 1.0),
    ],
)
def test_what_is_refused(options, r_drop):
    with pytest.raises(UserError, match="`r_drop` must be"):
        model_of(**options).compile("sgd", r_drop=r_drop)
