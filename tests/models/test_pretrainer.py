"""BertPretrainer: the loss of the original, gradients into the tied table, learning."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertPretrainer
from bert_tf.training import AdamWeightDecay


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
    keras.utils.set_random_seed(0)
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamWeightDecay(5e-3))
    dataset = tf.data.Dataset.from_tensors((inputs, labels)).repeat(150)
    history = model.fit(dataset, verbose=0).history
    logs = model.evaluate(tf.data.Dataset.from_tensors((inputs, labels)), return_dict=True)
    assert logs["masked_lm_accuracy"] > 0.9 and logs["next_sentence_accuracy"] == 1.0
    assert {"masked_lm_loss", "next_sentence_loss"} <= set(history)
    model.save(tmp_path / "pretrainer.keras")
    opened = keras.models.load_model(tmp_path / "pretrainer.keras")
    np.testing.assert_array_equal(
        opened(inputs)["masked_logits"], model(inputs)["masked_logits"]
    )
