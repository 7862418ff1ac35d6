"""mask_texts: masks that can be undone, new in every epoch, or always the same."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.errors import ConfigError
from bert_tf.tasks.masked_lm import mask_texts
from bert_tf.text import SubwordTokenizer
from tests.text.subwords import unigram_definition

TEXTS = ["the good film xyz", "bad", "the bad film. " * 5, "a b c d e f g h i j k l m n"] * 5


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary):
    return BertTokenizer(tiny_vocabulary, lowercase=False, split_special_tokens=False)


def batches_of(texts, tokenizer, **options):
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(6)
    return mask_texts(dataset, tokenizer, **{"max_length": 16, "masked_lm_prob": 0.3, **options})


def restored(features, labels):
    ids = features["token_ids"].numpy()
    rows, places = np.nonzero(labels["masked_weights"].numpy())
    ids[rows, features["masked_positions"].numpy()[rows, places]] = labels["masked_ids"].numpy()[
        rows, places
    ]
    return ids


@pytest.mark.parametrize("masking", ["token", "whole_word", "span"])
def test_labels_give_back_the_tokens(tokenizer, masking):
    start = 0
    for features, labels in batches_of(TEXTS, tokenizer, masking=masking):
        rows = len(features["token_ids"])
        tokens = tokenizer(TEXTS[start : start + rows], max_length=16)
        np.testing.assert_array_equal(restored(features, labels), tokens["token_ids"])
        np.testing.assert_array_equal(features["padding_mask"], tokens["padding_mask"])
        hidden = tf.gather(features["token_ids"], features["masked_positions"], batch_dims=1)
        weights = labels["masked_weights"].numpy()
        assert np.isin(labels["masked_ids"].numpy()[weights > 0], [0, 2, 3, 4], invert=True).all()
        lengths = tokens["padding_mask"].numpy().sum(axis=1)
        if masking == "token":
            wanted = np.minimum(np.maximum(np.rint(lengths * 0.3), 1), lengths - 2)
            np.testing.assert_array_equal(weights.sum(axis=1), wanted)
        assert (hidden.numpy()[weights > 0] == 4).mean() > 0.4
        start += rows
    assert start == len(TEXTS)


def test_whole_words_of_a_subword_tokenizer():
    """A word is masked with all of its pieces, which do not begin with `##`."""
    pieces = [("▁film", -1.0), ("s", -2.0), ("▁", -3.0)]
    tokenizer = SubwordTokenizer(unigram_definition(pieces))
    texts = ["films films films films"] * 8
    masked = 0
    for features, labels in batches_of(texts, tokenizer, masking="whole_word"):
        for places, weights in zip(features["masked_positions"], labels["masked_weights"]):
            chosen = set(places.numpy()[weights.numpy() > 0].tolist())
            assert {place - 1 for place in chosen if place % 2 == 0} == {
                place for place in chosen if place % 2 == 1
            }
            masked += len(chosen)
    assert masked


def test_masks_of_every_epoch(tokenizer):
    def epoch(dataset):
        return np.concatenate([f["masked_positions"].numpy().ravel() for f, _ in dataset])

    fresh, again = (batches_of(TEXTS, tokenizer, seed=7) for _ in range(2))
    first, second = epoch(fresh), epoch(fresh)
    assert (first != second).any()
    np.testing.assert_array_equal(epoch(again), first)
    np.testing.assert_array_equal(epoch(again), second)
    assert (epoch(batches_of(TEXTS, tokenizer, seed=8)) != first).any()
    fixed = batches_of(TEXTS, tokenizer, fresh=False)
    np.testing.assert_array_equal(epoch(fixed), epoch(fixed))


def test_a_mask_in_the_text_is_no_target(tokenizer):
    ((features, labels),) = batches_of(["[MASK] [MASK] a"], tokenizer, masked_lm_prob=0.9)
    assert labels["masked_weights"].numpy().sum() == 1
    np.testing.assert_array_equal(restored(features, labels), [[2, 4, 4, 10, 3]])


def test_pairs(tokenizer):
    dataset = tf.data.Dataset.from_tensor_slices((["good", "bad"], ["the film", "a"])).batch(2)
    ((features, labels),) = mask_texts(dataset, tokenizer, max_length=16)
    tokens = tokenizer(["good", "bad"], ["the film", "a"])
    np.testing.assert_array_equal(restored(features, labels), tokens["token_ids"])
    np.testing.assert_array_equal(features["segment_ids"], tokens["segment_ids"])


def test_wrong_options_are_refused(tokenizer, tiny_vocabulary):
    with pytest.raises(ConfigError, match="masking='word'"):
        batches_of(TEXTS, tokenizer, masking="word")
    with pytest.raises(ConfigError, match="mask_token=None"):
        batches_of(TEXTS, BertTokenizer(tiny_vocabulary, mask_token=None))


@pytest.mark.parametrize("masking", ["token", "span"])
def test_an_empty_batch(tokenizer, masking):
    texts = tf.TensorSpec([None], tf.string)
    dataset = tf.data.Dataset.from_generator(lambda: [[]], output_signature=texts)
    ((features, labels),) = mask_texts(dataset, tokenizer, max_length=16, masking=masking)
    assert features["token_ids"].shape[0] == labels["masked_ids"].shape[0] == 0
    assert features["token_ids"].shape[1] == 2
