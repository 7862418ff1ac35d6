"""`quantize(attention=…, skip=…, activations=…)`: what is computed in 8-bit integers, saved and
opened, and the errors of the layers by which to choose."""

import dataclasses
import functools
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import bert_tf
from bert_tf import BertBackbone, BertSentenceEncoder, BertTextClassifier, BertTokenizer
from bert_tf.adapt import quantization_errors
from bert_tf.errors import CheckpointError, UserError
from bert_tf.layers import Quantization
from bert_tf.layers.kernels import FloatKernel, Int8Kernel
from bert_tf.serving import ConstantGraphModel
from research.corpora.film_reviews import read_film_reviews
from tests.serving.operations import operations

TEXTS = ["good film", "", "the bad good film", "a . b . c"]
TOKENS = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0]])}
PARTLY = {"attention": "int8", "skip": ["blocks.0", "blocks.1.output_dense"]}


@pytest.fixture
def backbone(tiny_config):
    keras.utils.set_random_seed(3)
    backbone = BertBackbone(tiny_config)
    for variable in backbone.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
    return backbone


@pytest.fixture
def classifier(backbone, tiny_vocabulary):
    model = BertTextClassifier(backbone, tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False))
    model.run_eagerly = True
    return model


STATIC = {**PARTLY, "activations": "static"}


@pytest.fixture(scope="module")
def saved(tiny_config, tmp_path_factory):
    """A function that returns the directory of a quantized backbone, which it makes once."""

    @functools.cache
    def save(is_static):
        directory = tmp_path_factory.mktemp("static" if is_static else "dynamic")
        backbone = BertBackbone(tiny_config)
        options = {"calibration": [TOKENS], "activations": "static"} if is_static else PARTLY
        backbone.quantize("int8", **options)
        backbone.save_pretrained(directory, format="bert_tf")
        return directory

    return save


def forms(backbone):
    layers = backbone.encoder.dense_layers()
    return {path: type(dense.kernel_impl) for path, dense in layers.items()}


def outputs(backbone):
    return backbone(TOKENS)["sequence_output"].numpy()


def test_skipped_layers_keep_their_kernels(backbone):
    backbone.quantize("int8", skip=PARTLY["skip"])
    expected = {
        path: FloatKernel
        if path.startswith("blocks.0.") or path == "blocks.1.output_dense"
        else Int8Kernel
        for path in forms(backbone)
    }
    assert forms(backbone) == expected
    assert set(expected.values()) == {FloatKernel, Int8Kernel}


@pytest.mark.parametrize("attention", ["bfloat16", "int8"])
def test_attention_has_less_precision_on_request_only(backbone, tmp_path, attention):
    backbone.save_pretrained(tmp_path)
    everything = list(forms(backbone))
    plain, attentive = (BertBackbone.from_pretrained(tmp_path) for _ in range(2))
    plain.quantize("int8", skip=everything)
    attentive.quantize("int8", attention=attention, skip=everything)
    difference = outputs(attentive) - outputs(plain)
    assert 0 < np.abs(difference).max() < 0.05
    plain.padding_free = attentive.padding_free = False  # only packed tokens have it
    np.testing.assert_array_equal(outputs(attentive), outputs(plain))


@pytest.mark.parametrize("form", ["directory", pytest.param(".keras", marks=pytest.mark.full)])
@pytest.mark.parametrize("quantization", [PARTLY, STATIC], ids=["dynamic", "static"])
def test_saved_and_opened(classifier, tmp_path, form, quantization):
    classifier.quantize("int8", calibration=TEXTS, **quantization)
    expected = classifier.predict(TEXTS, verbose=0)
    if form == "directory":
        classifier.save_pretrained(tmp_path, format="bert_tf")
        opened = [BertTextClassifier.from_pretrained(tmp_path)]
    else:
        classifier.save(tmp_path / "model.keras")
        opened = [
            keras.saving.load_model(tmp_path / "model.keras"),
            BertTextClassifier.from_pretrained(tmp_path / "model.keras"),
        ]
    for model in opened:
        model.run_eagerly = True
        assert model.backbone.quantization == {"mode": "int8", **quantization}
        assert forms(model.backbone) == forms(classifier.backbone)
        np.testing.assert_array_equal(model.predict(TEXTS, verbose=0), expected)


def test_static_scales_come_from_the_texts(backbone):
    expected = outputs(backbone)
    backbone.quantize("int8", calibration=[TOKENS], activations="static")
    static = outputs(backbone)
    assert 0 < np.std(static - expected) < 0.05 * np.std(expected)
    for dense in backbone.encoder.dense_layers().values():
        scale, zero = dense.kernel_impl.unpacked()["static_scale"].numpy()
        assert scale > 0 and 0 < zero < 255
    # Larger numbers than in the texts are clamped.
    layer = backbone.encoder.blocks[0].attention.query_key_value
    rows = tf.random.normal([3, backbone.config.hidden_size]) * 1000.0
    np.testing.assert_array_equal(layer(rows), layer(rows * 10.0))


def test_padding_and_other_texts_do_not_change_a_static_model(classifier):
    classifier.quantize("int8", calibration=TEXTS, activations="static")
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(
        [classifier.predict([text], verbose=0)[0] for text in TEXTS], expected, atol=1e-6
    )


def test_static_scales_need_calibration(backbone, tmp_path):
    backbone.save_pretrained(tmp_path)
    for quantize in (
        lambda: backbone.quantize("int8", activations="static"),
        lambda: BertBackbone.from_pretrained(
            tmp_path, quantization=Quantization(activations="static")
        ),
    ):
        with pytest.raises(UserError, match="`calibration` must be.*'static'"):
            quantize()
    assert backbone.quantization is None


@pytest.mark.parametrize(
    "value",
    [
        [0.0, 3.0],
        pytest.param([1.0, 2.5], marks=pytest.mark.full),
        pytest.param([1.0, 256.0], marks=pytest.mark.full),
        [np.nan, 1.0],
    ],
    ids=str,
)
def test_a_damaged_static_scale(saved, tmp_path, value):
    shutil.copytree(saved(True), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "bert_tf.safetensors")
    name = "encoder.blocks.1.output_dense.kernel_input_scale"
    tensors[name] = np.array(value, np.float32)
    save_file(tensors, tmp_path / "bert_tf.safetensors")
    with pytest.raises(CheckpointError, match=f"{name}.*must hold"):
        BertBackbone.from_pretrained(tmp_path)


def test_a_plain_model_is_saved_as_before(backbone, tmp_path):
    backbone.quantize("int8", attention="float", skip=[])
    backbone.save_pretrained(tmp_path, format="bert_tf")
    config = json.loads((tmp_path / "bert_tf.json").read_text())
    assert config["quantization"] == "int8"


@pytest.mark.parametrize("change", [
    {"mode": "int4"}, {"attention": "int4"}, {"skip": "blocks.0"}, {"skip": [1]}, {"more": 1},
    {"skip": ["blocks.9"]}, {"activations": "fixed"},
], ids=str)  # fmt: skip
def test_damaged_files(saved, tmp_path, change):
    shutil.copytree(saved(False), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "bert_tf.json").read_text())
    config["quantization"].update(change)
    (tmp_path / "bert_tf.json").write_text(json.dumps(config))
    with pytest.raises((CheckpointError, UserError), match="quantization|skip|activations"):
        BertBackbone.from_pretrained(tmp_path)


def test_from_pretrained_quantizes(backbone, tmp_path):
    backbone.save_pretrained(tmp_path)
    backbone.quantize("int8", **PARTLY)
    for value in ({"mode": "int8", **PARTLY}, Quantization(**PARTLY)):
        opened = BertBackbone.from_pretrained(tmp_path, quantization=value)
        np.testing.assert_array_equal(outputs(opened), outputs(backbone))


@pytest.mark.full
@pytest.mark.parametrize("quantization", [PARTLY, STATIC], ids=["dynamic", "static"])
def test_constant_graph_xla_and_export(classifier, tmp_path, quantization):
    classifier.quantize("int8", calibration=TEXTS, **quantization)
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(ConstantGraphModel(classifier)(TEXTS), expected, atol=1e-5)
    for portable in (False, True):
        path = bert_tf.serving.export(classifier, tmp_path / str(portable), portable=portable)
        assert ("BertTf>QuantizedAttention" in operations(path)) != portable
        classify = tf.saved_model.load(path).signatures["serving_default"]
        scores = list(classify(text=tf.constant(TEXTS)).values())
        assert any(np.shape(score) == expected.shape for score in scores)
    classifier.compile(jit_compile=True)
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=2e-2)


def test_skipped_layers_can_be_prepacked(backbone):
    backbone.quantize("int8", **PARTLY)
    expected = outputs(backbone)
    backbone.prepack_for_inference()
    assert backbone.is_prepacked and FloatKernel not in forms(backbone).values()
    np.testing.assert_allclose(outputs(backbone), expected, atol=1e-5)


@pytest.mark.parametrize("arguments, message", [
    ({"attention": "int4"}, "`attention` must be one of"),
    ({"skip": "blocks.0"}, "`skip` must be a sequence"),
    ({"skip": ["blocks.0", "block.1"]}, "`skip` must name layers.*Received: .*'block.1'"),
    ({"skip": ["blocks.0.atten"]}, "`skip` must name layers"),
    ({"mode": "int4"}, "`mode` must be 'int8'"),
    ({"activations": "fixed"}, "`activations` must be one of"),
], ids=str)  # fmt: skip
def test_bad_arguments_change_nothing(backbone, arguments, message):
    expected = outputs(backbone)
    with pytest.raises(UserError, match=message):
        backbone.quantize(**{"mode": "int8", **arguments})
    assert backbone.quantization is None
    np.testing.assert_array_equal(outputs(backbone), expected)


@pytest.mark.parametrize("activations", [pytest.param("dynamic", marks=pytest.mark.full), "static"])
def test_errors_of_the_layers(tiny_config, activations):
    backbone = BertBackbone(dataclasses.replace(tiny_config, num_hidden_layers=1))
    errors = quantization_errors(backbone, [TOKENS], activations)
    paths = [*forms(backbone), "blocks.0.attention_scores"]
    assert sorted(errors) == sorted(paths)
    assert all(0 < error < 0.05 for error in errors.values())
    assert backbone.quantization is None and backbone.padding_free == "auto"
    # A column with one number that is far too large costs all others their bits.
    dense = backbone.encoder.blocks[0].intermediate
    kernel = dense.kernel.numpy()
    kernel[0, :] *= 1000.0
    dense.kernel.assign(kernel)
    path = "blocks.0.intermediate"
    assert quantization_errors(backbone, [TOKENS], activations)[path] != errors[path]


def test_every_path_of_the_errors_can_be_skipped(backbone):
    errors = quantization_errors(backbone, [TOKENS])
    expected = outputs(backbone)
    backbone.quantize("int8", attention="int8", skip=errors)
    assert set(forms(backbone).values()) == {FloatKernel}
    assert not any(block.attention.precision != "float" for block in backbone.encoder.blocks)
    np.testing.assert_allclose(outputs(backbone), expected, atol=0.05)  # words are quantized


def test_a_block_is_skipped_with_its_attention(backbone):
    backbone.quantize("int8", attention="int8", skip=["blocks.0"])
    assert [block.attention.precision for block in backbone.encoder.blocks] == ["float", "int8"]


@pytest.mark.parametrize("options", [{"causal": True}, {"attention_window": 1}], ids=str)
def test_errors_are_those_of_what_a_token_sees(backbone, options, tmp_path):
    backbone.save_pretrained(tmp_path)
    masked = BertBackbone.from_pretrained(tmp_path, **options)
    path = "blocks.0.attention_scores"  # its input is that of the other backbone
    errors = [quantization_errors(model, [TOKENS])[path] for model in (backbone, masked)]
    assert errors[0] != errors[1]


def test_another_quantization_than_that_of_the_file_is_refused(backbone, tmp_path):
    backbone.quantize("int8")
    backbone.save_pretrained(tmp_path, format="bert_tf")
    BertBackbone.from_pretrained(tmp_path, quantization="int8")
    with pytest.raises(UserError, match="`quantization` must be that of the file"):
        BertBackbone.from_pretrained(tmp_path, quantization=Quantization(attention="int8"))


def test_the_first_blocks_of_a_file(backbone, tmp_path):
    backbone.quantize("int8", skip=["blocks.1", "blocks.0.output_dense"])
    backbone.save_pretrained(tmp_path, format="bert_tf")
    first = BertBackbone.from_pretrained(tmp_path, num_encoder_layers=1)
    assert first.quantization["skip"] == ["blocks.0.output_dense"]


def test_errors_need_texts_and_kernels(backbone):
    with pytest.raises(UserError, match="at least one token"):
        quantization_errors(backbone, [])
    backbone.quantize("int8")
    with pytest.raises(UserError, match="must not be quantized to be measured"):
        quantization_errors(backbone, [TOKENS])


@pytest.mark.full
def test_minilm_on_real_sentences(minilm, materials):
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    texts = [text for text, _, _ in read_film_reviews(path)[:60]]
    expected = BertSentenceEncoder.from_pretrained(minilm).encode(texts)
    encoder = BertSentenceEncoder.from_pretrained(minilm)
    encoder.quantize("int8", attention="int8")
    cosines = np.sum(encoder.encode(texts) * expected, axis=1)
    assert cosines.min() > 0.99
