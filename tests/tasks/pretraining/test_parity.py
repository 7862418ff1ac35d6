"""50 optimizer steps of a tiny BertPretrainer against an independent float64 implementation."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertPretrainer
from bert_tf.training import AdamWeightDecay, WarmupLinearDecay
from tests.models.numpy_bert import NumpyAdam, NumpyPretrainer, variables_of

STEPS = 50


def batch(rng, rows=4, length=9, places=3):
    lengths = rng.integers(4, length + 1, rows)
    counts = rng.integers(1, places + 1, rows)
    features = {
        "token_ids": rng.integers(5, 64, (rows, length)).astype(np.int32),
        "segment_ids": rng.integers(0, 2, (rows, length)).astype(np.int32),
        "padding_mask": np.arange(length) < lengths[:, None],
        "masked_positions": rng.integers(0, 4, (rows, places)).astype(np.int32),
    }
    labels = {
        "masked_ids": rng.integers(5, 64, (rows, places)).astype(np.int32),
        "masked_weights": (np.arange(places) < counts[:, None]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, rows).astype(np.int32),
    }
    return features, labels


@pytest.fixture
def model(tiny_config):
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return BertPretrainer(BertBackbone(config))


def reference(model):
    config = model.backbone.config
    parameters = {name: v.numpy().astype(np.float64) for name, v in variables_of(model).items()}
    assert len(parameters) == len(model.trainable_variables)
    return NumpyPretrainer(parameters, config.num_hidden_layers, config.num_attention_heads)


def test_the_references_gradient_is_the_slope_of_its_loss(model):
    rng = np.random.default_rng(1)
    numpy_model = reference(model)
    data = batch(rng)
    _, gradients = numpy_model.loss_and_gradients(*data)
    for name, values in numpy_model.parameters.items():
        for _ in range(3):
            place = tuple(rng.integers(0, size) for size in values.shape)
            value, step = values[place], 1e-5
            losses = []
            for changed in (value + step, value - step):
                values[place] = changed
                losses.append(numpy_model.loss_and_gradients(*data)[0])
            values[place] = value
            slope = (losses[0] - losses[1]) / (2 * step)
            np.testing.assert_allclose(gradients[name][place], slope, rtol=1e-5, atol=1e-8)


def test_fifty_steps_follow_the_reference(model):
    rng = np.random.default_rng(2)
    batches = [batch(rng) for _ in range(STEPS)]
    numpy_model, optimizer = reference(model), NumpyAdam()
    expected = []
    for step, data in enumerate(batches):
        loss, gradients = numpy_model.loss_and_gradients(*data)
        expected.append(loss)
        rate = 2e-3 * step / 5 if step < 5 else 2e-3 * (1 - step / STEPS)
        optimizer.apply(numpy_model.parameters, gradients, rate)

    model.compile(AdamWeightDecay(WarmupLinearDecay(2e-3, STEPS, 5)))
    losses = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: losses.append(float(logs["loss"]))
    )
    stacked = tf.nest.map_structure(lambda *values: np.stack(values), *batches)
    model.fit(tf.data.Dataset.from_tensor_slices(stacked), verbose=0, callbacks=[record])
    # Keras logs the mean over the steps so far.
    totals = np.array(losses) * np.arange(1, STEPS + 1)
    difference = np.abs(np.diff(totals, prepend=0.0) - expected).max()
    print(f"largest difference in loss over {STEPS} steps: {difference:.2e}")
    assert difference < 1e-4
    for name, variable in variables_of(model).items():
        if not name.endswith("qkv/bias"):  # the key's part has a gradient of rounding errors alone
            np.testing.assert_allclose(
                variable.numpy(), numpy_model.parameters[name], atol=2e-4, err_msg=name
            )
