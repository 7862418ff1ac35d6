"""Gradients of batches that are encoded part by part are those of the whole batch."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertSentenceEncoder, BertTokenizer
from bert_tf.training import (
    AdamWeightDecay,
    CachedMultipleNegativesRankingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)

ANCHORS = ["good film", "the bad", "a b c d e f", "film", "the good the bad .", "b", "c d"]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
POSITIVES = ["good", "bad film", "a b c", "the film .", "the", "a", "d"]


@pytest.fixture(scope="module")
def one_block(tiny_config):
    return dataclasses.replace(tiny_config, num_hidden_layers=1)


@pytest.fixture(scope="module")
def without_dropout(one_block):
    return dataclasses.replace(one_block, **NO_DROPOUT)


@pytest.fixture(scope="module")
def whole(without_dropout, tiny_vocabulary):
    loss = MultipleNegativesRankingLoss()
    return step(without_dropout, tiny_vocabulary, loss, run_eagerly=True)


def step(config, vocabulary, objective, texts=(ANCHORS, POSITIVES), **options):
    """The logs of a step and the weights after it, of an encoder that is always the same."""
    keras.utils.set_random_seed(5)
    encoder = BertSentenceEncoder(BertBackbone(config), tokenizer=BertTokenizer(vocabulary))
    encoder.compile(keras.optimizers.SGD(1.0), objective=objective, **options)
    logs = encoder.fit(texts, batch_size=len(texts[0]), shuffle=False, verbose=0).history
    states = [v.numpy() for v in encoder.variables if v.name == "seed_generator_state"]
    return logs, [weight.numpy() for weight in encoder.trainable_weights], states


def assert_same_step(one, other):
    for name in one[0]:
        np.testing.assert_allclose(one[0][name], other[0][name], rtol=1e-5, err_msg=name)
    for weight, expected in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


@pytest.mark.parametrize(
    "size, run_eagerly",
    [
        (3, False),
        (1, True),
        (100, True),
        *(pytest.param(size, False, marks=pytest.mark.full) for size in (1, 7, 100)),
    ],
)
def test_the_gradient_is_that_of_the_whole_batch(
    without_dropout, tiny_vocabulary, whole, size, run_eagerly
):
    cached = CachedMultipleNegativesRankingLoss(mini_batch_size=size)
    received = step(without_dropout, tiny_vocabulary, cached, run_eagerly=run_eagerly)
    assert_same_step(received, whole)


def test_hard_negatives_and_other_losses(without_dropout, tiny_vocabulary):
    texts = (ANCHORS, POSITIVES, POSITIVES[::-1])
    whole = MatryoshkaLoss(MultipleNegativesRankingLoss(symmetric=True), dims=[32, 8])
    cached = CachedMultipleNegativesRankingLoss(symmetric=True, mini_batch_size=2)
    assert_same_step(
        step(without_dropout, tiny_vocabulary, MatryoshkaLoss(cached, dims=[32, 8]), texts),
        step(without_dropout, tiny_vocabulary, whole, texts, run_eagerly=True),
    )


def test_both_passes_draw_the_same_masks(one_block, tiny_vocabulary):
    """With dropout: the gradient is that of the loss, and one batch draws its seeds once."""
    config = dataclasses.replace(one_block, hidden_dropout_prob=0.5)
    whole = step(config, tiny_vocabulary, MultipleNegativesRankingLoss())
    cached = step(config, tiny_vocabulary, CachedMultipleNegativesRankingLoss(mini_batch_size=7))
    assert_same_step(cached, whole)
    for state, expected in zip(cached[2], whole[2], strict=True):
        np.testing.assert_array_equal(state, expected)


def test_learns_in_a_graph_of_any_number_of_rows(one_block, tiny_vocabulary):
    keras.utils.set_random_seed(5)
    encoder = BertSentenceEncoder(BertBackbone(one_block), tokenizer=BertTokenizer(tiny_vocabulary))
    objective = CachedMultipleNegativesRankingLoss(mini_batch_size=4)
    encoder.compile(AdamWeightDecay(3e-3), objective=objective)
    texts = (ANCHORS * 9, POSITIVES * 9)  # 63 rows: the last batch has fewer
    history = encoder.fit(texts, batch_size=10, epochs=4, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
