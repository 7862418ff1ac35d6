"""The best thresholds, compared with all thresholds tried one by one."""

import numpy as np
import pytest

from bert_tf.errors import DataError
from bert_tf.training.evaluation.pair_scores import best_f1_threshold, pair_scores


def tried(scores, labels):
    """The best accuracy and F1 of any threshold."""
    accuracies, f1s = [], []
    for threshold in [*scores, np.max(scores) + 1]:
        decided = scores >= threshold
        accuracies.append(np.mean(decided == labels))
        f1s.append(2 * np.sum(decided & labels) / max(np.sum(decided) + np.sum(labels), 1))
    return max(accuracies), max(f1s)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_all_thresholds(seed, dtype):
    random = np.random.default_rng(seed)
    scores = (random.normal(size=40) * 5).astype(dtype)  # integers are often equal
    labels = random.random(40) < 0.3 + 0.1 * seed
    found = pair_scores(scores, labels)
    accuracy, f1 = tried(scores.astype(np.float64), labels)
    assert (found["accuracy"], found["f1"]) == pytest.approx((accuracy, f1))
    assert np.mean((scores >= found["accuracy_threshold"]) == labels) == pytest.approx(accuracy)
    decided = scores >= found["f1_threshold"]
    assert found["precision"] == pytest.approx(np.mean(labels[decided]))
    assert found["recall"] == pytest.approx(np.mean(decided[labels]))


def test_one_class():
    negative = pair_scores(np.array([0.5, 0.7]), np.array([0, 0]))
    assert negative["accuracy"] == 1.0 and negative["accuracy_threshold"] > 0.7
    assert negative["f1"] == negative["recall"] == negative["matthews"] == 0.0
    positive = pair_scores(np.array([0.5, 0.7]), np.array([1, 1]))
    assert positive["accuracy"] == positive["f1"] == 1.0 and positive["f1_threshold"] == 0.5


def test_neighboring_numbers_stay_apart():
    below = np.nextafter(1.0, 0.0)
    found = pair_scores(np.array([1.0, below]), np.array([1, 0]))
    assert found["f1"] == 1.0 and below < found["f1_threshold"] <= 1.0


def test_pairs_that_no_candidate_has():
    best = best_f1_threshold(np.array([0.9, 0.5]), np.array([True, True]), num_positive=6)
    assert best == pytest.approx((0.5, 2 * 2 / (2 + 6)))


@pytest.mark.parametrize(
    "scores, labels, message",
    [
        ([], [], r"scores.shape=\(0,\)"),
        ([0.1, 0.2], [1], r"labels.shape=\(1,\)"),
        ([0.1, 0.2], [1, 3], r"`labels` must be 0 or 1. Received: \[1 3\]"),
        ([0.1, np.nan], [1, 0], "`scores` must be finite. Received: nan for pair 1"),
        ([-np.inf, 0.1], [1, 0], "Received: -inf for pair 0"),
    ],
)
def test_bad_arguments(scores, labels, message):
    with pytest.raises(DataError, match=message):
        pair_scores(np.array(scores), np.array(labels))
