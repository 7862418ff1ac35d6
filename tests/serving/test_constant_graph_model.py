"""Packed kernels in a SavedModel, and `ConstantGraphModel`."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertSentenceEncoder, BertTextClassifier, BertTokenizer, ops
from bert_tf.errors import UserError
from bert_tf.models import serving_module
from bert_tf.serving import ConstantGraphModel, export
from tests.training import processes

TEXTS = ["the good film.", "bad", "", "good café", "good " * 100]


def serve(path):
    """In a process of its own: what the exported model says, and the shapes of what it holds."""
    assert ops.active_backend() == "native"  # loads the ops
    loaded = tf.saved_model.load(path)
    signature = loaded.signatures["serving_default"]
    logits = signature(text=tf.constant(TEXTS))["logits"].numpy().tolist()
    shapes = [list(variable.shape) for variable in signature.variables]
    print(json.dumps({"logits": logits, "shapes": shapes}))


def test_a_server_holds_the_packed_kernels_alone(
    tiny_config, tiny_vocabulary, tmp_path, monkeypatch
):
    monkeypatch.setattr(serving_module, "LEAST_VARIABLE_BYTES", 0)
    classifier = BertTextClassifier(
        BertBackbone(tiny_config), labels=["bad", "good"], tokenizer=BertTokenizer(tiny_vocabulary)
    )
    size = sum(int(np.prod(variable.shape)) for variable in classifier.variables)
    kernels = [
        dense.kernel.shape
        for block in classifier.backbone.encoder.blocks
        for dense in (
            block.attention.query_key_value,
            block.attention_output,
            block.intermediate,
            block.output_dense,
        )
    ]
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.prepack_for_inference()
    path = export(classifier, tmp_path, portable=False)
    packed = [[depth * -(-units // 32) * 32] for depth, units in kernels]
    written = [
        shape for _, shape in tf.train.list_variables(os.path.join(path, "variables/variables"))
    ]
    assert all(written.count(shape) >= packed.count(shape) for shape in packed)
    assert [tiny_config.hidden_size, tiny_config.intermediate_size] not in written
    process = processes.start(serve, tmp_path / "text", path=str(path))
    assert process.wait() == 0, process.text()
    served = json.loads(process.text().splitlines()[-1])
    np.testing.assert_allclose(served["logits"], expected, atol=1e-5)
    # As many numbers as before packing, so nothing is there twice.
    padding = sum(int(np.prod(p)) for p in packed) - sum(int(np.prod(k)) for k in kernels)
    assert sum(int(np.prod(shape)) for shape in served["shapes"]) <= size + padding


@pytest.fixture(scope="module")
def make(tiny_config, tiny_vocabulary):
    def make():
        return BertSentenceEncoder(
            BertBackbone(tiny_config),
            normalize=True,
            tokenizer=BertTokenizer(tiny_vocabulary),
            max_length=20,
        )

    return make


@pytest.fixture(scope="module")
def encoder(make):
    return make()


@pytest.fixture(scope="module")
def encode(encoder):
    return ConstantGraphModel(encoder)


def test_it_gives_the_models_vectors(encoder, encode):
    expected = encoder.encode(TEXTS)
    np.testing.assert_allclose(encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(encode(TEXTS[0]), expected[:1], atol=1e-5)


def test_it_gives_the_vectors_of_packed_kernels(make):
    encoder = make()
    expected = encoder.encode(TEXTS)
    encoder.prepack_for_inference()
    encode = ConstantGraphModel(encoder)
    np.testing.assert_allclose(encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(encode(TEXTS[0]), expected[:1], atol=1e-5)


def test_it_is_a_copy(encoder, encode):
    table = encoder.backbone.embeddings.word_embeddings
    before, weights = encode(TEXTS), table.numpy()
    table.assign(-3.0 * table)
    assert np.abs(encoder.encode(TEXTS) - before).max() > 1e-3
    np.testing.assert_array_equal(encode(TEXTS), before)
    table.assign(weights)


def test_it_needs_a_tokenizer(tiny_config):
    with pytest.raises(UserError, match="tokenizer"):
        ConstantGraphModel(BertSentenceEncoder(BertBackbone(tiny_config)))


@pytest.mark.parametrize("pairs", [("good", "bad"), (["good"], ["bad"]), [("good", "bad")]])
def test_it_refuses_pairs(encode, pairs):
    with pytest.raises(UserError, match="`texts` must be a string or a list of strings"):
        encode(pairs)


def test_a_tokenizer_that_replaces_takes_malformed_text(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, errors="replace")
    encoder = BertSentenceEncoder(BertBackbone(tiny_config), tokenizer=tokenizer)
    expected = encoder.encode([b"good \xff"])
    np.testing.assert_allclose(ConstantGraphModel(encoder)([b"good \xff"]), expected, atol=1e-5)
