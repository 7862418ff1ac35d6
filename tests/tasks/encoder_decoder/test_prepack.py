"""`prepack_for_inference` of an encoder and a decoder: the same texts, and no way to stale weights.

The native ops are needed.
"""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertEncoderDecoder, BertTokenizer, ops
from bert_tf.errors import UserError
from bert_tf.layers.kernels import Int8Kernel, PrepackedKernel
from bert_tf.training import AdamWeightDecay

SOURCES = ["good film", "the bad film.", "a b c"]
NEW = 5  # tokens
PLAIN: dict = {}
SHARED = {"share_encoder_decoder_weights": True}
UNTIED = {"tie_word_embeddings": False}
ERROR = 0.03  # the largest relative error of logits in bfloat16; measured 0.016

pytestmark = pytest.mark.skipif(
    ops.active_backend() != "native", reason="prepacked kernels need the native ops"
)


@pytest.fixture(scope="module")
def make_model(tiny_config, tiny_vocabulary):
    """Makes models; those with the same seed and options have the same weights."""

    def make(seed=3, **options):
        keras.utils.set_random_seed(seed)
        config = dataclasses.replace(tiny_config, num_hidden_layers=1)
        tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
        model = BertEncoderDecoder(BertBackbone(config), tokenizer=tokenizer, **options)
        source = np.random.default_rng(seed)
        for weight in model.weights:
            weight.assign(weight + source.normal(0.0, 0.3, weight.shape))
        return model

    return make


def logits_of(model):
    targets = {"decoder_token_ids": np.array([[2, 7, 8], [2, 9, 0], [2, 5, 6]])}
    return model({**model.tokenize(SOURCES), **targets}).numpy()


def step_logits_of(model):
    """The logits of the first word, with the steps of `generate`."""
    state, memory = model.start_decoding(dict(model.tokenize(SOURCES)), NEW)
    return model.next_token(tf.fill([3], model.start_token_id), 0, state, memory)[0].numpy()


def relative_error(received, expected):
    return np.linalg.norm(received - expected) / np.linalg.norm(expected)


def decoder_kernels(model):
    return {type(dense.kernel_impl) for dense in model.decoder.dense_layers().values()}


@pytest.mark.full
def test_beams_also_of_a_saved_model(make_model, tmp_path):
    """For greedy decoding see test_generate.py."""
    model = make_model(seed=4)
    tokens = dict(model.tokenize(SOURCES))
    expected = model.generate(tokens, NEW, num_beams=3)
    assert len(np.unique(expected)) > 3
    model.prepack_for_inference()
    model.generation_config = model.generation_options(NEW, num_beams=3)
    with pytest.raises(UserError, match="`portable` must be False"):
        model.export(tmp_path, portable=True)
    served = tf.saved_model.load(model.export(tmp_path, portable=False)).signatures["tokens"]
    np.testing.assert_array_equal(served(**tokens)["token_ids"], expected)


@pytest.mark.parametrize("options", [PLAIN, SHARED, UNTIED], ids=["plain", "shared", "untied"])
def test_logits(make_model, options):
    models = {precision: make_model(**options) for precision in ("float32", "bfloat16")}
    whole, first = logits_of(models["float32"]), step_logits_of(models["float32"])
    for precision, model in models.items():
        model.optimize_for_inference(precision)
        model.optimize_for_inference(precision)  # once more changes nothing
        assert decoder_kernels(model) == {PrepackedKernel}
        kernels = [dense.kernel_impl.packed for dense in model.decoder.dense_layers().values()]
        assert {kernel.dtype for kernel in kernels} == {precision}
        assert all(dense.kernel is None for dense in model.decoder.dense_layers().values())
        errors = [
            relative_error(logits_of(model), whole),
            relative_error(step_logits_of(model), first),
        ]
        low, high = (0.0, 1e-5) if precision == "float32" else (1e-4, ERROR)
        assert all(low < error < high for error in errors), errors


@pytest.mark.parametrize("options", [SHARED, UNTIED], ids=["shared", "untied"])
def test_weights_are_saved_and_loaded_as_those_of_a_plain_model(make_model, options, tmp_path):
    plain, model = make_model(seed=4, **options), make_model(**options)
    plain.save_weights(tmp_path / "plain.weights.h5")
    expected = logits_of(plain)
    model.prepack_for_inference()
    model.load_weights(tmp_path / "plain.weights.h5")
    np.testing.assert_allclose(logits_of(model), expected, atol=1e-5)
    model.save_weights(tmp_path / "prepacked.weights.h5")
    for weight in plain.weights:
        weight.assign(tf.zeros_like(weight))
    plain.load_weights(tmp_path / "prepacked.weights.h5")
    np.testing.assert_array_equal(logits_of(plain), expected)


def test_loading_the_encoder_alone_reaches_shared_words(make_model, tmp_path):
    model, other = make_model(**SHARED), make_model(seed=4, **SHARED)
    other.prepack_for_inference()
    other.backbone.save_weights(tmp_path / "encoder.weights.h5")
    prepacked = make_model(**SHARED)
    prepacked.prepack_for_inference()
    for one in (model, prepacked):
        one.backbone.load_weights(tmp_path / "encoder.weights.h5")
    np.testing.assert_allclose(logits_of(prepacked), logits_of(model), atol=1e-5)


@pytest.mark.parametrize(
    "options, kinds",
    [
        pytest.param(PLAIN, {PrepackedKernel}, id="plain"),
        pytest.param(SHARED, {PrepackedKernel, Int8Kernel}, id="shared", marks=pytest.mark.full),
    ],
)
def test_8_bit_integers_leave_the_decoder_to_be_prepacked(make_model, options, kinds, tmp_path):
    model = make_model(**options)
    model.quantize("int8")
    expected = logits_of(model)
    model.optimize_for_inference("float32")
    encoder = model.backbone.encoder.dense_layers().values()
    assert {type(dense.kernel_impl) for dense in encoder} == {Int8Kernel}
    assert decoder_kernels(model) == kinds
    np.testing.assert_allclose(logits_of(model), expected, atol=1e-5)
    require_guards(model, tmp_path)


def test_what_needs_the_kernels_is_refused(make_model, tmp_path):
    model = make_model()
    model.prepack_for_inference()
    require_guards(model, tmp_path)
    with pytest.raises(UserError, match="to be quantized"):
        model.quantize("int8")


def require_guards(model, directory):
    model.compile(AdamWeightDecay(1e-3))
    for call, message in {
        lambda: model.fit((SOURCES, SOURCES), verbose=0): "to be trained",
        lambda: model.enable_lora(2): "to be given LoRA",
        lambda: model.save_pretrained(directory / "model"): "to be saved as a checkpoint",
        lambda: model.save(directory / "model.keras"): "to be serialized",
    }.items():
        with pytest.raises(UserError, match=message):
            call()
    assert not list(directory.iterdir())
