"""Negatives that a guide finds too similar do not count."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertSentenceEncoder, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay, GISTEmbedLoss, MatryoshkaLoss

OPTIONS = {
    "defaults": {},
    "absolute": {"margin": 0.1, "contrast_anchors": False},
    "relative": {"margin": 0.2, "margin_strategy": "relative", "contrast_positives": False},
}


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def expected_losses(
    vectors,
    guides,
    margin=0.0,
    margin_strategy="absolute",
    contrast_anchors=True,
    contrast_positives=True,
):
    """In float64, one candidate after the other."""
    vectors, guides = unit(vectors.astype(np.float64)), unit(guides.astype(np.float64))
    count, num_texts, _ = vectors.shape
    kinds = [(0, 1)] + [(0, 0)] * contrast_anchors + [(1, 1)] * contrast_positives
    kinds += [(0, 2)] * (num_texts == 3)
    losses = []
    for row in range(count):
        partner = guides[row, 0] @ guides[row, 1]
        most = partner - margin * (abs(partner) if margin_strategy == "relative" else 1.0)
        logits = [
            vectors[row, first] @ vectors[other, second] / 0.01
            for first, second in kinds
            for other in range(count)
            if (other == row and (first, second) == (0, 1))
            or (
                (other, first) != (row, second)
                and guides[row, first] @ guides[other, second] <= most
            )
        ]
        right = vectors[row, 0] @ vectors[row, 1] / 0.01
        losses.append(np.logaddexp.reduce(logits) - right)
    return losses


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("num_texts", [2, 3])
def test_against_float64(options, num_texts):
    random = np.random.default_rng(0)
    vectors = random.normal(size=[7, num_texts, 5]).astype(np.float32)
    guides = random.normal(size=[7, num_texts, 4]).astype(np.float32)
    loss = GISTEmbedLoss(**options)
    found = loss.losses(tf.constant(guides), loss.outputs(tf.constant(vectors)))
    expected = expected_losses(vectors, guides, **options)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_a_text_is_no_negative_of_itself():
    random = np.random.default_rng(0)
    vectors = random.normal(size=[7, 2, 5]).astype(np.float32)
    guides = random.normal(size=[7, 1, 4]).astype(np.float32).repeat(2, axis=1)
    loss = GISTEmbedLoss(temperature=0.1)
    with tf.GradientTape() as tape:
        variable = tf.Variable(vectors)
        found = loss.losses(tf.constant(guides), loss.outputs(variable))
    pairs, own = unit(vectors) @ unit(vectors).transpose(0, 2, 1), np.arange(7)
    cosines = np.einsum("akd,bld->kalb", unit(vectors), unit(vectors)) / 0.1
    blocks = [cosines[0, :, 1], cosines[0, :, 0], cosines[1, :, 1]]
    for block in blocks[1:]:
        block[own, own] = -np.inf
    expected = np.logaddexp.reduce(np.concatenate(blocks, axis=1), axis=1) - pairs[:, 0, 1] / 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert np.isfinite(tape.gradient(found, variable)).all()


def test_trains_an_encoder(tiny_config, tiny_vocabulary):
    backbone, tokenizer = BertBackbone(tiny_config), BertTokenizer(tiny_vocabulary)
    encoder = BertSentenceEncoder(backbone, tokenizer=tokenizer)
    keras.utils.set_random_seed(5)
    texts = (list("abcdefgh"), list("bcdefghi"))
    guides = np.random.default_rng(0).normal(size=[8, 2, 4]).astype(np.float32)
    loss = MatryoshkaLoss(GISTEmbedLoss(mini_batch_size=3), dims=[16, 4])
    encoder.compile(AdamWeightDecay(1e-3), objective=loss)
    history = encoder.fit(texts, guides, batch_size=8, epochs=6, verbose=0).history["loss"]
    assert history[-1] < history[0]
    with pytest.raises(UserError, match="guide's vectors of all texts"):
        encoder.fit(texts, guides[:, 0], batch_size=8, verbose=0)
    with pytest.raises(UserError, match="margin_strategy"):
        GISTEmbedLoss(margin_strategy="none")
    with pytest.raises(UserError, match="temperature"):
        GISTEmbedLoss(temperature=0)


@pytest.mark.peers
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("num_texts", [2, 3])
def test_sentence_transformers_has_the_same_loss(minilm, monkeypatch, options, num_texts):
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    import torch
    from sentence_transformers.sentence_transformer.losses import gist_embed

    model = library.SentenceTransformer(str(minilm), device="cpu")
    random = np.random.default_rng(1)
    vectors = random.normal(size=[7, num_texts, 5]).astype(np.float32)
    guides = random.normal(size=[7, num_texts, 4]).astype(np.float32)
    columns = iter([vectors, guides])
    monkeypatch.setattr(
        gist_embed,
        "embed_columns",
        lambda model, features: list(torch.from_numpy(next(columns)).unbind(1)),
    )
    expected = gist_embed.GISTEmbedLoss(model, model, **options)([], None).item()
    loss = GISTEmbedLoss(**options)
    found = loss.losses(tf.constant(guides), loss.outputs(tf.constant(vectors)))
    np.testing.assert_allclose(np.mean(found), expected, rtol=1e-5)
