"""EpochScores: labels as `fit` takes them, and errors before the first epoch."""

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.errors import DataError
from bert_tf.training import EpochScores, ThresholdSweep

TEXTS = ["good film", "bad film", "the good.", "a b c"]


@pytest.fixture(scope="module")
def make(tiny_config, tiny_vocabulary):
    def make(**options):
        keras.utils.set_random_seed(3)
        model = BertTextClassifier(
            BertBackbone(tiny_config, num_encoder_layers=1),
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
            **options,
        )
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
        return model

    return make


def scores_of(model, y, labels):
    logs = model.fit(TEXTS, labels, callbacks=[EpochScores(TEXTS, y)], verbose=0).history
    return {name: values for name, values in logs.items() if name.startswith("val_")}


def test_labels_as_fit_takes_them(make):
    model, ids = make(labels=["bad", "good"]), np.array([1, 0, 1, 0])
    names = ["good", "bad", "good", "bad"]
    expected = scores_of(model, ids, ids)
    loss = model.evaluate(TEXTS, ids, verbose=0)
    assert expected["val_loss"] == pytest.approx([loss], rel=1e-5)
    for labels in (names, np.array(names), np.eye(2)[ids]):
        assert scores_of(model, labels, ids) == expected
    model = make(labels=["x", "y"], problem_type="multi_label_classification")
    rows = np.array([[1, 0], [1, 1], [0, 0], [0, 1]], np.float32)
    named = [["x"], ["x", "y"], [], ["y"]]
    assert scores_of(model, named, rows) == scores_of(model, rows, rows)


def test_two_classes_have_a_best_threshold(make):
    model, ids = make(labels=["bad", "good"]), np.array([1, 0, 1, 0])
    found = scores_of(model, ids, ids)
    swept = model.fit(TEXTS, ids, callbacks=[ThresholdSweep(TEXTS, ids)], verbose=0).history
    for name in ("val_best_f1", "val_best_threshold"):
        assert found[name] == swept[name]
    three = make(labels=["bad", "good", "fair"])
    assert "val_best_f1" not in scores_of(three, ids, ids)


@pytest.mark.parametrize(
    "labels, message",
    [
        (["good", "bad", "good", "fine"], "Received: 'fine'"),
        ([0, 1, 0, 2], r"in \[0, 2\)"),
        ([0, 1], "each of the 4 inputs. Received: 2 labels"),
    ],
)
def test_wrong_labels_are_found_before_the_first_epoch(make, labels, message):
    model = make(labels=["bad", "good"])
    with pytest.raises(DataError, match=message):
        scores_of(model, labels, [0, 1, 0, 1])
    assert int(model.optimizer.iterations) == 0
