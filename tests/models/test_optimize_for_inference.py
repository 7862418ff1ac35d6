"""`optimize_for_inference`: each precision on real weights, its error, and what it refuses."""

import dataclasses
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertSentenceEncoder, BertTokenizer, serving
from bert_tf.errors import UserError
from bert_tf.layers import kernel_choice
from bert_tf.layers.kernels import FloatKernel, Int8Kernel, PrepackedKernel

TEXTS = ["A quiet film.", "No.", "It was " * 60]
# The largest relative error of the vectors of MiniLM; measured 0.008 and 0.083.
ERRORS = {"float32": 1e-5, "bfloat16": 0.012, "int8": 0.12}


@pytest.fixture(scope="module")
def tokens(minilm):
    return BertTokenizer.from_pretrained(minilm)(TEXTS)


@pytest.fixture(scope="module")
def expected(minilm, tokens):
    return BertBackbone.from_pretrained(minilm)(tokens)["sequence_output"].numpy()


def _kernels(backbone):
    return [dense.kernel_impl for dense in backbone.encoder.dense_layers().values()]


def _relative_error(received, expected):
    return np.linalg.norm(received - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ERRORS)
def test_real_weights(minilm, tokens, expected, precision):
    backbone = BertBackbone.from_pretrained(minilm)
    assert backbone.optimize_for_inference(precision) == precision
    kind = Int8Kernel if precision == "int8" else PrepackedKernel
    assert {type(kernel) for kernel in _kernels(backbone)} == {kind}
    for padding_free in (True, False):
        backbone.padding_free = padding_free
        y = backbone(tokens)["sequence_output"]
        assert y.dtype == tf.float32
        error = _relative_error(y, expected)
        assert error < ERRORS[precision], error
        assert error > (0.0 if precision == "float32" else 1e-4)


def test_kernels_in_bfloat16_need_half_the_memory(tiny_config):
    backbone = BertBackbone(tiny_config)
    before = [kernel.kernel.value.numpy().nbytes for kernel in _kernels(backbone)]
    backbone.optimize_for_inference("bfloat16")
    after = [kernel.packed.value.numpy().nbytes for kernel in _kernels(backbone)]
    panels = [-(-kernel.shape[1] // 32) * 32 / kernel.shape[1] for kernel in _kernels(backbone)]
    assert after == [int(size * share / 2) for size, share in zip(before, panels, strict=True)]


class TestAuto:
    # What `kernel_choice.measure` returns on some machine, by what is picked there.
    TABLES = {
        "plain": {1: {"plain": 1.0, "float32": 0.5}, 512: {"plain": 1.0, "float32": 1.3}},
        "float32": {1: {"plain": 1.0, "float32": 0.5}, 512: {"plain": 1.0, "float32": 0.9}},
        "bfloat16": {1: {"plain": 1.0, "float32": 0.5, "bfloat16": 0.4}},
    }

    @pytest.fixture(params=TABLES)
    def form(self, request):
        return request.param

    @pytest.fixture
    def measured(self, monkeypatch, form):
        """The forms of each measurement, on a machine where `form` is picked."""
        measured = []

        def measure(blocks, dtypes):
            measured.append(list(dtypes))
            return self.TABLES[form]

        monkeypatch.setattr(kernel_choice, "has_bfloat16_products", lambda: form == "bfloat16")
        monkeypatch.setattr(kernel_choice, "_tables", {})
        monkeypatch.setattr(kernel_choice, "measure", measure)
        return measured

    def test_the_table_decides(self, tiny_config, caplog, measured, form):
        for _ in range(2):  # the second model has the same sizes
            backbone = BertBackbone(tiny_config)
            with caplog.at_level(logging.INFO, logger="bert_tf"):
                received = backbone.optimize_for_inference()
            assert received == ("float32" if form == "plain" else form)
            assert backbone.is_prepacked == (form != "plain")
            if form == "plain":
                assert {type(kernel) for kernel in _kernels(backbone)} == {FloatKernel}
            else:
                assert {kernel.packed.dtype for kernel in _kernels(backbone)} == {form}
            assert f"The fastest kernels are {form}" in caplog.messages[-1]
        assert measured == [list(self.TABLES[form][1])]
        BertBackbone(
            dataclasses.replace(tiny_config, intermediate_size=32)
        ).optimize_for_inference()
        assert len(measured) == 2

    def test_prepacked_kernels_stay(self, tiny_config, measured):
        backbone = BertBackbone(tiny_config)
        backbone.optimize_for_inference("float32")
        kernels = _kernels(backbone)
        backbone.optimize_for_inference()
        assert _kernels(backbone) == kernels and measured == []

    @pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
    def test_measured_on_this_machine(self, tiny_config, dtype):
        backbone = BertBackbone(tiny_config, dtype=dtype)
        inputs = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0]])}
        expected = tf.cast(backbone(inputs)["sequence_output"], tf.float32)
        assert backbone.optimize_for_inference() in ("float32", "bfloat16")
        y = tf.cast(backbone(inputs)["sequence_output"], tf.float32)
        np.testing.assert_allclose(y, expected, atol=0.06)


def test_a_saved_model_and_a_constant_graph_in_bfloat16(tiny_config, tiny_vocabulary, tmp_path):
    texts = ["the good film.", "", "bad " * 12]
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    encoder = BertSentenceEncoder(BertBackbone(tiny_config), tokenizer=tokenizer)
    expected = encoder.predict(texts, verbose=0)
    encoder.optimize_for_inference("bfloat16")
    vectors = encoder.predict(texts, verbose=0)
    assert 1e-4 < _relative_error(vectors, expected) < ERRORS["bfloat16"]
    path = serving.export(encoder, tmp_path / "exported", portable=False)
    answer = tf.saved_model.load(path).signatures["serving_default"]
    np.testing.assert_allclose(answer(text=tf.constant(texts))["vector"], vectors, atol=1e-5)
    constant = serving.ConstantGraphModel(encoder)
    np.testing.assert_allclose(constant(texts), vectors, atol=1e-5)
    with pytest.raises(UserError, match="`portable` must be False"):
        serving.export(encoder, tmp_path / "portable")


def test_weights_are_saved_as_those_of_a_plain_model(tiny_config, tmp_path):
    inputs = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0]])}
    one, other = (BertBackbone(tiny_config) for _ in range(2))
    one.optimize_for_inference("bfloat16")
    one.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    other.optimize_for_inference("bfloat16")
    np.testing.assert_array_equal(other(inputs)["sequence_output"], one(inputs)["sequence_output"])


def test_in_mixed_bfloat16_kernels_and_numbers_between_layers_are_bfloat16(tiny_config):
    backbone = BertBackbone(tiny_config, dtype="mixed_bfloat16")
    inputs = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0]])}
    expected = tf.cast(backbone(inputs)["sequence_output"], tf.float32)
    backbone.optimize_for_inference("bfloat16")
    y = backbone(inputs)["sequence_output"]
    assert y.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(y, tf.float32), expected, atol=0.06)


@pytest.mark.parametrize("mode", ["text", "backbone"])
def test_what_does_not_fit_changes_nothing(minilm, mode):
    model = (BertSentenceEncoder if mode == "text" else BertBackbone).from_pretrained(minilm)
    for message, arguments in {
        "`precision` must be one of .*'half'": {"precision": "half"},
        "must be 'int8' with the argument `attention`": {"attention": "int8"},
        "`mode`, `calibration`, `attention`, .* also bits": {"precision": "int8", "bits": 4},
        "`calibration` must be": {"precision": "int8", "activations": "static"},
    }.items():
        with pytest.raises(UserError, match=message):
            model.optimize_for_inference(**arguments)
    with pytest.raises(UserError, match="`dtype` must be None or 'bfloat16'.*'float16'"):
        model.prepack_for_inference("float16")
    model.optimize_for_inference("int8", attention="int8", skip=["blocks.0"])
    backbone = getattr(model, "backbone", model)
    assert {type(kernel) for kernel in _kernels(backbone)} == {Int8Kernel, PrepackedKernel}


def test_training_is_refused_afterwards(tiny_config):
    backbone = BertBackbone(tiny_config)
    backbone.optimize_for_inference("bfloat16")
    backbone.compile(keras.optimizers.SGD(), loss="mse")
    with pytest.raises(UserError, match="to be trained"):
        backbone.require_kernels("trained")
