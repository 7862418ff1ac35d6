"""Metrics of Keras in `compile` of models that return logits."""

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier
from bert_tf.errors import UserError

METRICS = keras.metrics
TOKENS = {"token_ids": np.array([[2, 5, 3], [2, 6, 3]])}


def compiled(tiny_config, metrics, **options):
    model = BertTextClassifier(BertBackbone(tiny_config, num_encoder_layers=1), **options)
    model.compile("sgd", metrics=metrics, run_eagerly=True)
    return model


def values(model, targets):
    logs = model.evaluate(TOKENS, targets, verbose=0, return_dict=True)
    return {name: value for name, value in logs.items() if name != "loss"}


def test_metrics_of_several_labels_are_of_probabilities(tiny_config):
    names = ["accuracy", "AUC", "binary_accuracy", "binary_crossentropy"]
    model = compiled(tiny_config, names, num_classes=2, problem_type="multi_label_classification")
    model.classifier.bias.assign([0.4, -0.4])  # logits between 0 and 0.5 are yes
    received = values(model, np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert [received[name] for name in names[:3]] == [1.0, 1.0, 1.0]
    logits = model.predict(TOKENS, verbose=0) * [1.0, -1.0]
    expected = np.log1p(np.exp(-logits)).mean()
    assert received["binary_crossentropy"] == pytest.approx(expected, rel=1e-4)


def test_metrics_of_one_label(tiny_config):
    model = compiled(tiny_config, ["accuracy", "sparse_categorical_crossentropy"])
    logs = model.evaluate(TOKENS, np.array([0, 1]), verbose=0, return_dict=True)
    assert logs["sparse_categorical_crossentropy"] == pytest.approx(logs["loss"], rel=1e-5)
    compiled(tiny_config, [METRICS.SparseTopKCategoricalAccuracy(1), "acc"])


NUMBERS = {"num_classes": 1, "problem_type": "regression"}
MULTI_LABEL = {"num_classes": 3, "problem_type": "multi_label_classification"}


@pytest.mark.parametrize(
    "metrics, options, message",
    [
        (["accuracy", "AUC"], {}, r"labels \[2\] and the logits \[2, 2\].*'AUC'.*EpochScores"),
        (["Recall"], {"num_classes": 3}, "Recall"),
        ([METRICS.F1Score()], {}, "F1Score"),
        (["binary_accuracy"], {}, "BinaryAccuracy"),
        ([METRICS.SparseCategoricalCrossentropy()], {}, r"\(from_logits=True\)"),
        ([METRICS.AUC(multi_label=True)], MULTI_LABEL, r"\(from_logits=True\)"),
        ([METRICS.BinaryAccuracy()], MULTI_LABEL, r"\(threshold=0.0\)"),
        (["Precision"], MULTI_LABEL, "Precision"),
        (["accuracy"], NUMBERS, "'mae'"),
    ],
)
def test_metrics_that_do_not_fit_are_refused(tiny_config, metrics, options, message):
    with pytest.raises(UserError, match=message):
        compiled(tiny_config, metrics, **options)
    assert compiled(tiny_config, None, **options).compiled
