"""Models of Keras's functional API that take strings: trained, saved, opened and exported."""

import dataclasses
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTokenizer, ops
from bert_tf.errors import ConfigError, UserError
from bert_tf.text import TokenizerLayer
from bert_tf.training import AdamWeightDecay
from tests.conformance.task import ONE_BLOCK, VOCABULARY, assert_same
from tests.conftest import REPOSITORY
from tests.serving.operations import operations

TEXTS = ["good film", "the bad film .", "good", "bad the e"] * 2
PAIRS = ["the", "film good", "bad", "a"] * 2
LABELS = np.array([1, 0, 1, 0] * 2)


def functional(num_texts=1, shape=(), **options):
    keras.utils.set_random_seed(3)
    backbone = BertBackbone(dataclasses.replace(ONE_BLOCK, initializer_range=0.2))
    tokenizer = BertTokenizer(VOCABULARY[:-1]).with_added_tokens(["bad the"])
    inputs = [keras.Input(shape, dtype="string", name=f"text_{i}") for i in range(num_texts)]
    layer = TokenizerLayer(tokenizer, **{"max_length": 12, **options})
    tokens = layer(inputs if num_texts > 1 else inputs[0])
    hidden = keras.layers.Dense(8, activation="tanh")(backbone(tokens)["pooled_output"])
    outputs = keras.layers.Dense(2)(hidden)
    return keras.Model(inputs if num_texts > 1 else inputs[0], outputs), backbone, layer


def test_a_model_of_strings(tmp_path):
    model, backbone, layer = functional()
    model.compile(AdamWeightDecay(3e-3), keras.losses.SparseCategoricalCrossentropy(True))
    assert not model.jit_compile
    before = backbone.embeddings.word_embeddings.numpy()
    first = model.evaluate(tf.constant(TEXTS), LABELS, verbose=0)
    model.fit(tf.constant(TEXTS), LABELS, batch_size=4, epochs=20, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)
    model.fit(dataset, epochs=4, verbose=0)
    assert model.evaluate(dataset, verbose=0) < first / 2
    assert np.abs(backbone.embeddings.word_embeddings - before).max() > 1e-3
    expected = model.predict(np.array(TEXTS, object), verbose=0)
    vectors = backbone(layer.tokenizer(TEXTS, max_length=12))["pooled_output"]
    for dense in model.layers[-2:]:
        vectors = dense(vectors)
    assert_same(vectors, expected)

    model.save(tmp_path / "model.keras")
    opened = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(opened.predict(tf.constant(TEXTS), verbose=0), expected)
    assert opened.layers[1].get_config() == layer.get_config()
    opened.fit(dataset, verbose=0)

    with ops.backend("reference"):
        model.export(tmp_path / "exported", verbose=False)
    assert not [name for name in operations(tmp_path / "exported") if name.startswith("BertTf")]
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    assert_same(exported.serve(tf.constant(TEXTS)), expected)
    assert_same(exported.serve(tf.constant(TEXTS[:1])), expected[:1])


@pytest.mark.full
def test_opened_in_another_process(tmp_path):
    model, *_ = functional()
    model.save(tmp_path / "model.keras")
    program = f"""
import keras
import tensorflow as tf
from bert_tf import BertBackbone
from bert_tf.text import TokenizerLayer
model = keras.models.load_model({str(tmp_path / "model.keras")!r})
print(model.predict(tf.constant(["good film"]), verbose=0).tolist())
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    received = json.loads(result.stdout.splitlines()[-1])
    np.testing.assert_allclose(
        received, model.predict(tf.constant(["good film"]), verbose=0), atol=1e-6
    )


@pytest.mark.parametrize("shape", [(), (1,)])
def test_pairs(shape):
    options = {"padding": "max_length", "truncation": "only_second", "name": "tokens"}
    model, backbone, layer = functional(2, shape, **options)
    assert layer.compute_output_spec(model.inputs)["token_ids"].shape == (None, 12)
    columns = [tf.reshape(tf.constant(texts), (-1, *shape)) for texts in (TEXTS, PAIRS)]
    received = model.predict(columns, verbose=0)
    rows = {"max_length": 12, "padding": "max_length", "truncation": "only_second"}
    expected = backbone(layer.tokenizer(TEXTS, PAIRS, **rows))["pooled_output"]
    for dense in model.layers[-2:]:
        expected = dense(expected)
    assert_same(received, expected)
    again = TokenizerLayer.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert layer.compute_output_spec(columns)["segment_ids"].shape == (8, 12)


def test_bad_arguments():
    tokenizer = BertTokenizer(VOCABULARY)
    for arguments, message in (
        ((VOCABULARY,), "`tokenizer` must be a BertTokenizer"),
        ((tokenizer, 1), "`max_length` must be at least 2"),
        ((tokenizer, 12, "widest"), "`padding` must be"),
        ((tokenizer, None, "max_length"), "`padding` must be"),
        ((tokenizer, 12, "longest", "first"), "`truncation` must be one of"),
    ):
        with pytest.raises(ConfigError, match=message):
            TokenizerLayer(*arguments)
    with pytest.raises(UserError, match="must be texts, or two for pairs. Received: 3 tensors"):
        TokenizerLayer(tokenizer)([tf.constant(["a"])] * 3)
    config = TokenizerLayer(tokenizer).get_config()
    config["tokenizer"] = keras.saving.serialize_keras_object(keras.layers.Dense(1))
    with pytest.raises(ConfigError, match="`tokenizer` must be a serialized Tokenizer"):
        TokenizerLayer.from_config(config)
