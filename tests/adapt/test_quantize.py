"""`quantize("int8")`: close to float32, a quarter of its size, saved and opened, only forward."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import bert_tf
from bert_tf import BertBackbone, BertSentenceEncoder, BertTextClassifier, BertTokenizer, ops
from bert_tf.checkpoints import convert
from bert_tf.errors import CheckpointError, UserError
from bert_tf.serving import ConstantGraphModel
from bert_tf.training import AdamWeightDecay
from research.corpora.film_reviews import read_film_reviews

TEXTS = ["good film", "", "the bad good film", "a . b . c"]
TOKENS = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0]])}


@pytest.fixture
def backbone(tiny_config):
    keras.utils.set_random_seed(3)
    backbone = BertBackbone(tiny_config)
    for variable in backbone.trainable_variables:  # biases too, and as large as trained ones
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
    return backbone


@pytest.fixture
def classifier(backbone, tiny_vocabulary):
    model = BertTextClassifier(backbone, tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False))
    model.compile(AdamWeightDecay(1e-3))
    return model


def size(directory):
    return sum(
        os.path.getsize(os.path.join(directory, name))
        for name in os.listdir(directory)
        if name.endswith(".safetensors")
    )


def test_minilm_on_real_sentences(minilm, materials, tmp_path, capsys):
    from scipy.stats import spearmanr

    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    texts = [text for text, _, _ in read_film_reviews(path)[:40]]
    encoder = BertSentenceEncoder.from_pretrained(minilm)
    encoder.save_pretrained(tmp_path / "float32", format="bert_tf")
    expected = encoder.encode(texts)
    encoder.quantize("int8")
    vectors = encoder.encode(texts)
    encoder.save_pretrained(tmp_path / "int8", format="bert_tf")
    cosines = np.sum(vectors * expected, axis=1)
    upper = np.triu_indices(len(texts), 1)
    correlation = spearmanr((vectors @ vectors.T)[upper], (expected @ expected.T)[upper])[0]
    ratio = size(tmp_path / "int8") / size(tmp_path / "float32")
    with capsys.disabled():
        print(
            f"\nMiniLM int8 compared with float32, {len(texts)} sentences: cosine mean "
            f"{cosines.mean():.5f}, least {cosines.min():.5f}; Spearman of {len(upper[0])} "
            f"similarities {correlation:.5f}; file {ratio:.3f} of float32's "
            f"{size(tmp_path / 'float32')} bytes"
        )
    assert len(texts) == 40
    assert cosines.mean() > 0.995 and cosines.min() > 0.98
    assert correlation > 0.99
    assert ratio <= 0.3
    again = BertSentenceEncoder.from_pretrained(tmp_path / "int8")
    np.testing.assert_array_equal(again.encode(texts[:20]), encoder.encode(texts[:20]))


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_close_to_float32(tiny_config, activation, dtype):
    import dataclasses

    keras.utils.set_random_seed(4)
    backbone = BertBackbone(dataclasses.replace(tiny_config, hidden_act=activation), dtype=dtype)
    for variable in backbone.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
    expected = tf.cast(backbone(TOKENS)["sequence_output"], tf.float32)
    backbone.quantize("int8")
    found = tf.cast(backbone(TOKENS)["sequence_output"], tf.float32)
    error = np.sqrt(np.mean((found - expected) ** 2)) / np.std(expected)
    assert 0.0005 < error < 0.05


def test_native_reference_and_padded_agree(backbone):
    backbone.quantize("int8")
    expected = backbone(TOKENS)["sequence_output"]
    with ops.backend("reference"):
        np.testing.assert_allclose(backbone(TOKENS)["sequence_output"], expected, atol=2e-2)
    backbone.padding_free = False
    np.testing.assert_allclose(backbone(TOKENS)["sequence_output"], expected, atol=2e-2)


def test_only_integers_are_left(classifier):
    expected = classifier.predict(TEXTS, verbose=0)
    assert classifier.quantize("int8") is None
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=0.05)
    for dense in classifier.backbone.encoder.dense_layers().values():
        assert dense.kernel is None and dense.packed_kernel.dtype == "int8"
    assert classifier.backbone.embeddings.word_embeddings.dtype == "int8"
    assert all(v.dtype == "float32" for v in classifier.trainable_variables)
    classifier.prepack_for_inference()  # there is nothing left to pack
    assert not classifier.backbone.is_prepacked


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "BertTextClassifier",
        "BertTokenClassifier",
        "BertQuestionAnswerer",
        "BertMultipleChoice",
        "BertMaskedLM",
        "BertPretrainer",
        "BertSentenceEncoder",
        "BertNextSentencePredictor",
    ],
)
def test_every_task_is_saved_and_opened(name, backbone, tiny_vocabulary, tmp_path):
    task = getattr(bert_tf, name)
    options = (
        {}
        if name == "BertPretrainer"
        else {"tokenizer": BertTokenizer(tiny_vocabulary, lowercase=False)}
    )
    if name == "BertTokenClassifier":
        options["labels"] = ["O", "B-X", "I-X"]
    model = task(backbone, **options)
    inputs = {**TOKENS, "masked_positions": tf.constant([[1], [1]])}
    if name == "BertMultipleChoice":
        inputs = {"token_ids": TOKENS["token_ids"][tf.newaxis]}  # [B, choices, T]
    floats = tf.nest.flatten(model(inputs))
    model.quantize("int8")
    outputs = tf.nest.flatten(model(inputs))
    for one, other in zip(outputs, floats):
        assert np.abs(one - other).max() < 0.15 * np.std(other) + 0.05
    model.save_pretrained(tmp_path / "model", format="bert_tf")
    again = task.from_pretrained(tmp_path / "model")
    assert again.backbone.quantization == "int8"
    for one, other in zip(tf.nest.flatten(again(inputs)), outputs):
        np.testing.assert_array_equal(one, other)
    again.save_pretrained(tmp_path / "again", format="bert_tf")
    first, second = (
        load_file(tmp_path / name / "bert_tf.safetensors") for name in ("model", "again")
    )
    assert first.keys() == second.keys()
    for key, values in first.items():
        assert values.dtype == second[key].dtype
        np.testing.assert_array_equal(values, second[key])


def test_backbone_is_saved_and_opened(backbone, tmp_path):
    backbone.save_pretrained(tmp_path / "float32")
    backbone.quantize("int8")
    expected = backbone(TOKENS)["pooled_output"]
    backbone.save_pretrained(tmp_path / "int8", format="bert_tf")
    for again in (
        BertBackbone.from_pretrained(tmp_path / "int8"),
        BertBackbone.from_pretrained(tmp_path / "int8", quantization="int8"),
        BertBackbone.from_pretrained(tmp_path / "float32", quantization="int8"),
    ):
        np.testing.assert_array_equal(again(TOKENS)["pooled_output"], expected)
    with pytest.raises(UserError, match="`mode` must be 'int8'.*'int4'"):
        BertBackbone.from_pretrained(tmp_path / "float32", quantization="int4")


@pytest.mark.usefixtures("eager_steps")
def test_keras_files(classifier, tmp_path):
    classifier.quantize("int8")
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.save(tmp_path / "model.keras")
    classifier.save_weights(tmp_path / "model.weights.h5")
    for again in (
        keras.models.load_model(tmp_path / "model.keras"),
        BertTextClassifier.from_pretrained(tmp_path / "model.keras"),
    ):
        np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), expected)
    other = BertTextClassifier.from_config(classifier.get_config())
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.predict(TEXTS, verbose=0), expected)


def test_what_needs_float_kernels_is_refused(classifier, tmp_path):
    classifier.enable_lora(rank=2)
    with pytest.raises(UserError, match="merge_lora"):
        classifier.quantize("int8")
    with pytest.raises(UserError, match="merge_lora"):
        classifier.backbone.quantize("int8")
    classifier.merge_lora()
    with pytest.raises(UserError, match="`mode` must be 'int8'"):
        classifier.quantize("float8")
    classifier.quantize("int8")
    with pytest.raises(UserError, match="to be quantized"):
        classifier.quantize("int8")
    with pytest.raises(UserError, match="not be quantized to be trained"):
        classifier.fit(TEXTS, [0, 1, 0, 1], verbose=0)
    classifier.compile(AdamWeightDecay(1e-3))
    with pytest.raises(UserError, match="to be given LoRA"):
        classifier.enable_lora(rank=2)
    for format in ("huggingface", "tf1"):
        with pytest.raises(UserError, match="`format` must be 'bert_tf'"):
            classifier.save_pretrained(tmp_path / format, format=format)
        assert not (tmp_path / format).exists()
    classifier.save_pretrained(tmp_path / "int8", format="bert_tf")
    with pytest.raises(UserError, match="floating-point weights"):
        convert(tmp_path / "int8", tmp_path / "converted", format="huggingface")


def test_a_prepacked_model_is_not_quantized(classifier):
    if ops.active_backend() != "native":
        return  # nothing can be prepacked
    classifier.prepack_for_inference()
    with pytest.raises(UserError, match="not be prepacked to be quantized"):
        classifier.quantize("int8")


def test_damaged_files(backbone, tmp_path):
    backbone.quantize("int8")
    backbone.save_pretrained(tmp_path, format="bert_tf")
    path = tmp_path / "bert_tf.safetensors"
    tensors = load_file(path)
    name = "encoder.blocks.1.intermediate.kernel"
    assert tensors[name].dtype == np.int8 and tensors[name].shape == (32, 48)
    for damaged, message in (
        ({key: value for key, value in tensors.items() if key != name}, "no such tensor"),
        ({**tensors, name: tensors[name].T.copy()}, r"shape \(32, 48\).*\(48, 32\)"),
        ({**tensors, name: tensors[name].astype(np.float32)}, "int8 numbers. Received: float32"),
        ({**tensors, name + "_scale": np.full([48], np.nan, np.float32)}, "finite float32"),
    ):
        save_file(damaged, path)
        with pytest.raises(CheckpointError, match=f"{name}.*{message}"):
            BertBackbone.from_pretrained(tmp_path)
    config = json.loads((tmp_path / "bert_tf.json").read_text())
    for change in ({"quantization": "int4"}, {"format_version": 2}):
        (tmp_path / "bert_tf.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(CheckpointError, match="int4|format_version"):
            BertBackbone.from_pretrained(tmp_path)


def test_constant_graph_and_xla(classifier):
    classifier.quantize("int8")
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(ConstantGraphModel(classifier)(TEXTS), expected, atol=1e-5)
    classifier.compile(jit_compile=True)
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=2e-2)
