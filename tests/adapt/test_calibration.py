"""Calibrated int8: nearer to float32 where columns differ, saved and opened, and nothing else."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_tf import BertBackbone, BertSentenceEncoder, BertTextClassifier, BertTokenizer, ops
from bert_tf.adapt.calibration import SeenRows, calibrate, calibration_batches, observed_inputs
from bert_tf.errors import CheckpointError, UserError
from bert_tf.training import AdamWeightDecay
from research.corpora.film_reviews import read_film_reviews

TEXTS = ["good film", "the bad good film", "a . b . c", "film"]
TOKENS = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0]])}


def outlying_backbone(config):
    """A backbone with a few columns much larger than the rest, as large BERTs have them."""
    keras.utils.set_random_seed(3)
    backbone = BertBackbone(config)
    for variable in backbone.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
    for block in backbone.encoder.blocks:
        gamma = block.attention_layer_norm.gamma.numpy()
        gamma[3] = 60.0
        block.attention_layer_norm.gamma.assign(gamma)
    return backbone


@pytest.fixture
def classifier(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    model = BertTextClassifier(outlying_backbone(tiny_config), tokenizer=tokenizer)
    model.compile(AdamWeightDecay(1e-3))
    return model


def dense_layers(model):
    return list(model.backbone.encoder.dense_layers().values())


def test_outlying_columns_cost_less(classifier, tmp_path):
    classifier.save_pretrained(tmp_path)

    def states(**quantize):
        model = BertTextClassifier.from_pretrained(tmp_path)
        if quantize:
            model.quantize(**quantize)
        return model.backbone(TOKENS)["sequence_output"].numpy(), model

    expected, _ = states()
    plain, plain_model = states(mode="int8")
    calibrated, model = states(mode="int8", calibration=TEXTS)
    assert not any(dense.kernel_impl.is_smoothed() for dense in dense_layers(plain_model))
    assert any(dense.kernel_impl.is_smoothed() for dense in dense_layers(model))
    assert np.std(calibrated - expected) < 0.7 * np.std(plain - expected)


def test_each_layer_takes_the_candidate_nearest_to_its_own_results(classifier):
    backbone = classifier.backbone
    batches = list(calibration_batches(classifier, "texts", TEXTS))
    scalings = calibrate(backbone, batches)
    assert backbone.padding_free == "auto"
    first = backbone.encoder.blocks[0].intermediate
    seen = SeenRows()
    kernel_impl = first.kernel_impl
    with observed_inputs(backbone, {first: seen}):
        backbone(batches[0])
        thread = threading.Thread(target=backbone, args=[batches[0]])
        thread.start()
        thread.join()  # its inputs are not seen
    assert first.kernel_impl is kernel_impl and len(seen.rows) == 1
    rows = seen.rows[0]

    def error(s):
        kernel = ops.pack_quantized_dense(
            *ops.quantize_kernel(tf.convert_to_tensor(first.kernel), s), s
        )
        y = ops.quantized_dense(rows, kernel, first.units)
        return np.mean((y - rows @ tf.convert_to_tensor(first.kernel)) ** 2)

    smoothing, static_scale = scalings[first]
    assert static_scale is None
    assert error(smoothing) < error(None)
    # A column that is large in x is made small, against all others.
    assert np.argmin(smoothing) == 3


def test_padding_is_not_looked_at(classifier):
    backbone = classifier.backbone
    first = calibrate(backbone, [TOKENS], "static")
    longer = {"token_ids": tf.pad(TOKENS["token_ids"], [[0, 0], [0, 9]])}
    second = calibrate(backbone, [longer], "static")
    assert first.keys() == second.keys()
    for dense, scaling in first.items():
        for part, other in zip(scaling, second[dense], strict=True):
            assert (part is None) == (other is None)
            if part is not None:
                np.testing.assert_allclose(other, part, rtol=1e-5)


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize(
    "calibration",
    [
        pytest.param([TOKENS], marks=pytest.mark.full),
        TEXTS,
        pytest.param((TEXTS, TEXTS[::-1]), marks=pytest.mark.full),
        pytest.param(np.array(TEXTS), marks=pytest.mark.full),
        pytest.param(tf.constant(TEXTS), marks=pytest.mark.full),
    ],
    ids=["tokens", "list", "pairs", "array", "tensor"],
)
def test_saved_and_opened(classifier, tmp_path, calibration):
    classifier.quantize("int8", calibration=calibration)
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.save_pretrained(tmp_path / "own", format="bert_tf")
    classifier.save(tmp_path / "model.keras")
    for again in (
        BertTextClassifier.from_pretrained(tmp_path / "own"),
        BertTextClassifier.from_pretrained(tmp_path / "model.keras"),
        keras.models.load_model(tmp_path / "model.keras"),
    ):
        np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), expected)


def test_damaged_smoothing(classifier, tmp_path):
    classifier.quantize("int8", calibration=TEXTS)
    classifier.save_pretrained(tmp_path, format="bert_tf")
    path = tmp_path / "bert_tf.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("_smoothing"))
    for damaged, message in (
        (tensors[name][:-1].copy(), "shape"),
        (np.full_like(tensors[name], np.inf), "finite float32"),
        (tensors[name].astype(np.float16), "Received: float16"),
    ):
        save_file({**tensors, name: damaged}, path)
        with pytest.raises(CheckpointError, match=f"{name}.*{message}"):
            BertTextClassifier.from_pretrained(tmp_path)


def test_bad_calibration(classifier, tiny_config):
    with pytest.raises(UserError, match="at least one text"):
        classifier.quantize("int8", calibration=[])
    with pytest.raises(UserError, match="`tokenizer` must be given"):
        BertTextClassifier(BertBackbone(tiny_config)).quantize("int8", calibration=TEXTS)
    with pytest.raises(UserError, match="a dataset of texts"):
        classifier.quantize("int8", calibration=tf.data.Dataset.from_tensor_slices(TEXTS).batch(2))
    with pytest.raises(UserError, match="row 1: 5"):
        classifier.quantize("int8", calibration=["text", 5])
    classifier.backbone.encoder.blocks[0].output_layer_norm.beta.assign(
        np.full([tiny_config.hidden_size], np.nan)
    )
    with pytest.raises(UserError, match="must be finite"):
        classifier.quantize("int8", calibration=TEXTS)
    assert classifier.backbone.quantization is None  # as it was: nothing is half quantized
    classifier.predict(TEXTS, verbose=0)


@pytest.mark.full
def test_minilm_comes_nearer_to_itself(minilm, materials, capsys):
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    texts = [text for text, _, _ in read_film_reviews(path)[:150]]
    encoder = BertSentenceEncoder.from_pretrained(minilm)
    expected = encoder.encode(texts[100:])
    errors = {}
    for name, calibration in (("none", None), ("100 reviews", texts[:100])):
        encoder = BertSentenceEncoder.from_pretrained(minilm)
        encoder.quantize("int8", calibration=calibration)
        vectors = encoder.encode(texts[100:])
        errors[name] = 1 - np.sum(vectors * expected, axis=1).mean()
    smoothed = sum(dense.kernel_impl.is_smoothed() for dense in dense_layers(encoder))
    with capsys.disabled():
        print(f"\nMiniLM int8, 1 - cosine by calibration: {errors}; {smoothed} layers smoothed")
    assert errors["100 reviews"] < errors["none"]
