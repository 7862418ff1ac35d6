"""BertPretrainer: the loss of the original, gradients into the tied table, learning."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertPretrainer
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay
from tests.conformance.padding import moved
from tests.conformance.task import TEXTS, encoded


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    lengths = np.array([9, 5, 7, 9])
    inputs = {
        "token_ids": rng.integers(5, 64, (4, 9)).astype(np.int32),
        "padding_mask": np.arange(9) < lengths[:, None],
        "masked_positions": np.array([[1, 2, 0], [3, 0, 0], [4, 5, 6], [8, 1, 0]], np.int32),
    }
    labels = {
        "masked_ids": rng.integers(5, 64, (4, 3)).astype(np.int32),
        "masked_weights": np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]], np.float32),
        "next_sentence_labels": np.array([0, 1, 1, 0], np.int32),
    }
    return inputs, labels


def test_loss_is_the_originals(tiny_config, batch):
    inputs, labels = batch
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamWeightDecay(1e-3))
    outputs = model(inputs)

    def log_softmax(logits):
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    masked = -np.take_along_axis(
        log_softmax(outputs["masked_logits"].numpy().astype(np.float64)),
        labels["masked_ids"][..., None],
        -1,
    )[..., 0]
    weights = labels["masked_weights"]
    following = -np.take_along_axis(
        log_softmax(outputs["next_sentence_logits"].numpy().astype(np.float64)),
        labels["next_sentence_labels"][:, None],
        -1,
    )
    expected = (masked * weights).sum() / (weights.sum() + 1e-5) + following.mean()
    loss = model.compute_loss(y=labels, y_pred=outputs)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_word_embeddings_are_tied(tiny_config, batch):
    inputs, labels = batch
    model = BertPretrainer(BertBackbone(tiny_config))
    with tf.GradientTape() as tape:
        loss = model.compute_loss(y=labels, y_pred=model(inputs))
    table = model.backbone.embeddings.word_embeddings
    gradient = tf.convert_to_tensor(tape.gradient(loss, table)).numpy()
    # Ids that are in no input get a gradient through the output matmul alone.
    absent = np.setdiff1d(np.arange(64), inputs["token_ids"])
    assert np.abs(gradient[absent]).max() > 0


def test_learns_the_batch_and_saves(tiny_config, batch, tmp_path):
    inputs, labels = batch
    keras.utils.set_random_seed(1)
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamWeightDecay(5e-3))
    dataset = tf.data.Dataset.from_tensors((inputs, labels)).repeat(150)
    history = model.fit(dataset, verbose=0).history
    logs = model.evaluate(tf.data.Dataset.from_tensors((inputs, labels)), return_dict=True)
    assert logs["masked_lm_accuracy"] > 0.9 and logs["next_sentence_accuracy"] == 1.0
    assert {"masked_lm_loss", "next_sentence_loss"} <= set(history)
    model.save(tmp_path / "pretrainer.keras")
    opened = keras.models.load_model(tmp_path / "pretrainer.keras")
    np.testing.assert_array_equal(opened(inputs)["masked_logits"], model(inputs)["masked_logits"])


@pytest.mark.parametrize("padding_free", [True, False])
def test_only_weighted_places_are_computed(tiny_config, batch, padding_free):
    inputs, labels = batch
    model = BertPretrainer(BertBackbone(tiny_config, padding_free=padding_free))
    every = model(inputs)["masked_logits"].numpy()
    picked = model.forward(inputs, labels, training=False)["masked_logits"].numpy()
    assert picked.shape == (8, 64)
    np.testing.assert_allclose(picked, every[labels["masked_weights"] > 0], atol=1e-5)


def test_batch_without_a_masked_word(tiny_config, batch):
    inputs, labels = batch
    labels = {**labels, "masked_weights": np.zeros((4, 3), np.float32)}
    model = BertPretrainer(BertBackbone(tiny_config), objective="mlm")
    model.compile(AdamWeightDecay(1e-3))
    logs = model.fit(tf.data.Dataset.from_tensors((inputs, labels)), verbose=0).history
    assert logs["loss"] == [0.0] and logs["perplexity"] == [1.0]
    assert all(np.isfinite(variable.numpy()).all() for variable in model.trainable_variables)


def test_without_sentences_the_pooler_stays(tiny_config, batch, recwarn):
    model = BertPretrainer(BertBackbone(tiny_config), objective="mlm")
    before = model.backbone.pooler.dense.kernel.numpy()
    model.compile(AdamWeightDecay(1e-2))
    history = model.fit(tf.data.Dataset.from_tensors(batch), verbose=0).history
    assert "next_sentence_loss" not in history and "masked_lm_loss" in history
    np.testing.assert_array_equal(model.backbone.pooler.dense.kernel, before)
    assert not [w for w in recwarn if "Gradients do not exist" in str(w.message)]


@pytest.mark.parametrize("padding_free", [True, False])
def test_left_to_right_predicts_the_next_word(tiny_config, batch, padding_free):
    inputs, labels = batch
    model = BertPretrainer(BertBackbone(tiny_config, padding_free=padding_free), objective="ltr")
    # The words that were masked are put back.
    token_ids = inputs["token_ids"].copy()
    for row, place in zip(*np.nonzero(labels["masked_weights"])):
        token_ids[row, inputs["masked_positions"][row, place]] = labels["masked_ids"][row, place]
    logits = model({**inputs, "token_ids": token_ids})["masked_logits"].numpy()  # [B, T, V]
    logits = logits.astype(np.float64)
    log_softmax = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_softmax[:, :-1], token_ids[:, 1:, None], -1)[..., 0]
    expected = losses[inputs["padding_mask"][:, 1:]].mean()
    model.compile(AdamWeightDecay(1e-3))
    logs = model.test_step(tf.nest.map_structure(tf.constant, batch))
    np.testing.assert_allclose(logs["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(logs["perplexity"], np.exp(expected), rtol=1e-5)
    # No place sees what comes after it.
    changed = token_ids.copy()
    changed[:, 5:] = 7
    other = model({**inputs, "token_ids": changed})["masked_logits"].numpy()
    np.testing.assert_allclose(other[:, :5], logits[:, :5], atol=1e-5)
    assert np.abs(other[:, 5:] - logits[:, 5:])[inputs["padding_mask"][:, 5:]].max() > 0.01


@pytest.mark.parametrize("side", ["left", "middle"])
def test_left_to_right_with_padding_anywhere(tiny_config, side):
    model = BertPretrainer(BertBackbone(tiny_config), objective="ltr")
    model.compile("sgd")
    losses = []
    for place in (side, "right"):
        tokens = tf.nest.map_structure(tf.constant, moved(encoded(TEXTS), place)[0])
        model.reset_metrics()
        losses.append(float(model.test_step((tokens, {}))["loss"]))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_wrong_objective(tiny_config):
    with pytest.raises(UserError, match="objective"):
        BertPretrainer(BertBackbone(tiny_config), objective="clm")


def packed_rows(rng):
    """Three sequences of 4, 3 and 5 tokens: one a row, and packed into two rows."""
    lengths, width = [4, 3, 5], 9
    token_ids = rng.integers(5, 64, (3, width)).astype(np.int32)
    mask = np.arange(width) < np.array(lengths)[:, None]
    single = {
        "token_ids": token_ids * mask,
        "segment_ids": np.where(np.arange(width) < 2, 0, 1) * mask,
        "padding_mask": mask,
        "masked_positions": np.array([[1, 3], [2, 0], [4, 1]]),
    }
    labels = {
        "masked_ids": rng.integers(5, 64, (3, 2)),
        "masked_weights": np.array([[1, 1], [1, 0], [1, 1]], np.float32),
        "next_sentence_labels": np.array([0, 1, 1]),
    }

    def laid(name):  # the first two in one row, the third alone
        values, out = single[name], np.zeros((2, width), single[name].dtype)
        out[0, :4], out[0, 4:7], out[1, :5] = values[0, :4], values[1, :3], values[2, :5]
        return out

    packed = {name: laid(name) for name in ("token_ids", "segment_ids", "padding_mask")}
    packed["sequence_ids"] = np.array([[1] * 4 + [2] * 3 + [0] * 2, [1] * 5 + [0] * 4])
    packed["positions"] = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 0], [0, 1, 2, 3, 4, 0, 0, 0, 0]])
    packed["sequence_starts"] = np.array([[0, 4], [0, 0]])
    packed["masked_positions"] = np.array([[1, 3, 6], [4, 1, 0]])
    ids = labels["masked_ids"]
    packed_labels = {
        "masked_ids": np.array([[ids[0, 0], ids[0, 1], ids[1, 0]], [ids[2, 0], ids[2, 1], 0]]),
        "masked_weights": np.array([[1, 1, 1], [1, 1, 0]], np.float32),
        "next_sentence_labels": np.array([[0, 1], [1, 0]]),
        "next_sentence_weights": np.array([[1, 1], [1, 0]], np.float32),
    }
    return (single, labels), (packed, packed_labels)


@pytest.mark.parametrize("objective", ["mlm_nsp", "ltr"])
@pytest.mark.parametrize("padding_free", [True, False])
def test_packed_rows_are_their_sequences(tiny_config, padding_free, objective):
    single, packed = packed_rows(np.random.default_rng(0))
    model = BertPretrainer(
        BertBackbone(tiny_config, padding_free=padding_free), objective=objective
    )
    states = [model.backbone(x)["sequence_output"].numpy() for x, _ in (single, packed)]
    np.testing.assert_allclose(states[1][0, 4:7], states[0][1, :3], atol=1e-5)
    np.testing.assert_allclose(states[1][1, :5], states[0][2, :5], atol=1e-5)
    pooled = [model.backbone(x)["pooled_output"].numpy() for x, _ in (single, packed)]
    np.testing.assert_allclose(pooled[1].reshape(4, -1)[:3], pooled[0], atol=1e-5)
    model.compile(AdamWeightDecay(1e-3))
    logs = []
    for data in (single, packed):
        model.reset_metrics()
        logs.append(model.test_step(tf.nest.map_structure(tf.constant, data)))
    for name in set(logs[0]) - {"padding_share"}:
        np.testing.assert_allclose(logs[0][name], logs[1][name], atol=1e-5, err_msg=name)
