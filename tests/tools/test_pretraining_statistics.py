import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from bert_tf.tools.common.pretraining_statistics import (
    label_statistics,
    unigram_entropy,
    wilson_interval,
)


@pytest.mark.parametrize("successes, count", [(0, 10), (7, 10), (640, 1000), (50, 50)])
def test_the_interval_is_scipys(successes, count):
    expected = stats.binomtest(successes, count).proportion_ci(method="wilson")
    np.testing.assert_allclose(
        wilson_interval(successes / count, count), (expected.low, expected.high), atol=1e-6
    )


def test_without_trials_nothing_is_known():
    assert wilson_interval(0.0, 0) == (0.0, 1.0)


def test_no_constant_prediction_beats_the_entropy():
    rng = np.random.default_rng(0)
    words = rng.zipf(1.5, 2000) % 50
    counts = np.bincount(words, minlength=60)
    entropy = unigram_entropy(counts)
    np.testing.assert_allclose(entropy, stats.entropy(counts), rtol=1e-12)
    for _ in range(20):
        guess = rng.dirichlet(counts + 1.0)
        assert -np.log(guess[words]).mean() >= entropy


def test_unused_places_are_not_counted():
    labels = [
        {
            "masked_ids": tf.constant([[5, 7], [5, 0]]),
            "masked_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
            "next_sentence_labels": tf.constant([0, 1]),
        },
        {
            "masked_ids": tf.constant([[9, 0]]),
            "masked_weights": tf.constant([[1.0, 0.0]]),
            "next_sentence_labels": tf.constant([1]),
        },
    ]
    batches = [({}, batch) for batch in labels]
    found = label_statistics(batches, {"next_sentence_accuracy": 2 / 3})
    assert found["masked_lm_examples"] == 4
    np.testing.assert_allclose(
        found["masked_lm_unigram_entropy"], stats.entropy([2, 1, 1]), rtol=1e-12
    )
    assert found["next_sentence_examples"] == 3
    low, high = wilson_interval(2 / 3, 3)
    assert found["next_sentence_accuracy_low"] == low
    assert found["next_sentence_accuracy_high"] == high
    assert "next_sentence_examples" not in label_statistics(batches, {})


def test_packed_rows_count_their_sequences():
    labels = {
        "masked_ids": tf.constant([[5]]),
        "masked_weights": tf.constant([[1.0]]),
        "next_sentence_labels": tf.constant([[0, 1, 0]]),
        "next_sentence_weights": tf.constant([[1.0, 1.0, 0.0]]),
    }
    found = label_statistics([({}, labels)], {"next_sentence_accuracy": 0.5})
    assert found["next_sentence_examples"] == 2
