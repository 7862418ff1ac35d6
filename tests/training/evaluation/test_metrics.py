"""F1, AUC and the threshold sweep against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from bert_tf.training import BinaryAUC, BinaryF1
from bert_tf.training.callbacks import best_threshold


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 500)
    logits = np.stack([np.zeros(500), labels * 1.0 + rng.normal(size=500)], 1).astype(np.float32)
    return labels, logits


def test_f1_and_auc(scores):
    labels, logits = scores
    f1, auc = BinaryF1(), BinaryAUC()
    for part in np.array_split(np.arange(500), 7):
        f1.update_state(labels[part], logits[part])
        auc.update_state(labels[part], logits[part])
    assert abs(float(f1.result()) - f1_score(labels, logits[:, 1] > 0)) < 1e-6
    assert abs(float(auc.result()) - roc_auc_score(labels, logits[:, 1])) < 2e-3


def test_f1_counts_the_weights_of_the_rows(scores):
    labels, logits = scores
    weights = np.where(logits[:, 1] > 0, 3.0, 0.5)
    f1 = BinaryF1()
    f1.update_state(labels, logits, weights)
    expected = f1_score(labels, logits[:, 1] > 0, sample_weight=weights)
    assert float(f1.result()) == pytest.approx(expected, abs=1e-6)
    assert abs(expected - f1_score(labels, logits[:, 1] > 0)) > 0.01


def test_f1_without_positives_is_zero():
    f1 = BinaryF1()
    f1.update_state([0, 0], [[1.0, 0.0], [1.0, 0.0]])
    assert float(f1.result()) == 0.0


def test_best_threshold_is_the_best_of_all(scores):
    labels, logits = scores
    probabilities = 1 / (1 + np.exp(-logits[:, 1]))
    threshold, f1 = best_threshold(labels, probabilities)
    every = [f1_score(labels, probabilities >= t) for t in np.arange(1, 100) / 100]
    assert f1 == pytest.approx(max(every))
    assert f1 == pytest.approx(f1_score(labels, probabilities >= threshold))
