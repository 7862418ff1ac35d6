"""TSDAE: the noise, the loss against NumPy, and that an encoder learns."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertSentenceEncoder
from bert_tf.adapt import DenoisingAutoencoder
from bert_tf.adapt.denoising_autoencoder import without_tokens
from bert_tf.errors import UserError
from tests.conformance.task import CONFIG, TEXTS, encoded, tokenizer

TOKENS = encoded(TEXTS)


def encoder_of(**options):
    keras.utils.set_random_seed(3)
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    backbone = BertBackbone(dataclasses.replace(CONFIG, **rates))
    return BertSentenceEncoder(backbone, tokenizer=tokenizer(), **options)


@pytest.mark.parametrize("rate", [0.0, 0.6, 0.99])
def test_the_noise(rate):
    lengths = np.array([2, 3, 40, 25, 0, 1, *[40] * 40])
    mask = np.arange(40) < lengths[:, np.newaxis]
    ids = np.where(mask, np.arange(1, 41), 0).astype(np.int32)
    tokens = {"token_ids": ids, "segment_ids": ids % 2}
    found = without_tokens(tokens, tf.constant(mask), rate, tf.constant(5, tf.int64))
    counts = []
    for row, (length, new, real) in enumerate(
        zip(lengths, found["token_ids"].numpy(), found["padding_mask"].numpy())
    ):
        kept = new[real]
        assert not real[len(kept) :].any()  # padding comes last
        assert (np.diff(kept) > 0).all() and set(kept) <= set(range(1, length + 1))
        assert set(kept) >= {1, length} - {0} or length == 0
        assert len(kept) >= min(length, 3)
        np.testing.assert_array_equal(found["segment_ids"][row].numpy()[real], kept % 2)
        if length == 40:
            counts.append(len(kept) - 2)
    share = np.sum(counts) / (38 * len(counts))
    assert abs(share - max(1 - rate, 1 / 38)) < 0.05
    again = without_tokens(tokens, tf.constant(mask), rate, tf.constant(5, tf.int64))
    np.testing.assert_array_equal(found["token_ids"], again["token_ids"])
    if rate == 0.6:
        other = without_tokens(tokens, tf.constant(mask), rate, tf.constant(6, tf.int64))
        assert np.any(found["token_ids"] != other["token_ids"])


def expected_loss(model):
    """Nothing is deleted here; another test compares the decoder with a reference."""
    ids, mask = TOKENS["token_ids"], TOKENS["padding_mask"]
    vectors = model.encoder.predict(TOKENS, verbose=0)[:, np.newaxis]
    ones = np.ones([len(ids), 1], bool)
    states, words = model.decoder(ids[:, :-1], mask[:, :-1], vectors, ones)
    logits = model.decoder.logits(tf.reshape(states, [-1, states.shape[-1]]), words)
    logits = logits.numpy().astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    own = log_p[np.arange(len(log_p)), ids[:, 1:].reshape(-1)]
    return -own[mask[:, 1:].reshape(-1)].mean()


@pytest.mark.parametrize("padding_free", [True, pytest.param(False, marks=pytest.mark.full)])
def test_the_loss_against_numpy(padding_free):
    encoder = encoder_of(normalize=True)
    encoder.backbone.padding_free = padding_free
    model = DenoisingAutoencoder(encoder, deletion_rate=0.0)
    expected = expected_loss(model)
    model.compile("sgd", run_eagerly=True)
    for x in (TEXTS, TOKENS):
        assert model.evaluate(x, verbose=0) == pytest.approx(expected, rel=1e-5)
    weights = []
    for parts in (1, 2):
        model = DenoisingAutoencoder(encoder_of(), deletion_rate=0.0)
        sgd = keras.optimizers.SGD(0.5)
        model.compile(sgd, gradient_accumulation_steps=parts, run_eagerly=True)
        model.train_on_batch(TOKENS)
        weights.append(model.get_weights())
    for whole, divided in zip(*weights, strict=True):
        np.testing.assert_allclose(divided, whole, atol=1e-5)


@pytest.mark.full
def test_an_encoder_learns(tmp_path):
    """The decoder can know a text of one word only from its vector."""
    texts = ["a", "b", "c", "good", "bad", "film"]
    encoder = encoder_of()
    before = [weight.numpy() for weight in encoder.backbone.encoder.weights]
    model = DenoisingAutoencoder(encoder, seed=1)
    model.compile(keras.optimizers.Adam(3e-3))
    model.fit(texts, batch_size=6, epochs=150, verbose=0)
    without_vector = np.log(6) / 2  # of two words, the second one, `[SEP]`, is always the same
    assert model.evaluate(texts, verbose=0) < 0.8 * without_vector
    for old, weight in zip(before, encoder.backbone.encoder.weights):
        assert np.any(old != weight.numpy()), weight.path
    encoder.save_pretrained(tmp_path)
    again = BertSentenceEncoder.from_pretrained(tmp_path)
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_what_is_refused():
    encoder = encoder_of()
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(UserError, match="`deletion_rate` must be in"):
            DenoisingAutoencoder(encoder, rate)
    with pytest.raises(UserError, match="vectors of the hidden size"):
        DenoisingAutoencoder(encoder_of(pooling="mean_max"))
    model = DenoisingAutoencoder(encoder)
    with pytest.raises(UserError, match="be left out"):
        model.compile("sgd", loss="mse")
    model.compile("sgd", run_eagerly=True)
    with pytest.raises(UserError, match="`y` must be None"):
        model.fit(TEXTS, np.zeros(len(TEXTS)), verbose=0)
    with pytest.raises(UserError, match="a single text in each row"):
        model.fit((TEXTS, TEXTS), verbose=0)
    with pytest.raises(UserError, match="must be the encoder"):
        model.get_config()
