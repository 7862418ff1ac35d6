"""`prepack_for_inference`: the same numbers from packed kernels, and no way to a stale one."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer, ops
from bert_tf.errors import UserError
from bert_tf.families.file_values import ACTIVATION_NAMES
from bert_tf.training import AdamWeightDecay

TEXTS = ["good film", "", "the bad good film", "a . b . c"]


@pytest.fixture
def classifier(tiny_config, tiny_vocabulary):
    keras.utils.set_random_seed(3)
    model = BertTextClassifier(
        BertBackbone(tiny_config), tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False)
    )
    model.compile(AdamWeightDecay(1e-3))
    return model


def test_real_weights_give_the_same(minilm):
    tokens = BertTokenizer.from_pretrained(minilm)(["A quiet film.", "No.", "It was " * 60])
    backbone = BertBackbone.from_pretrained(minilm)
    expected = backbone(tokens)
    size = sum(np.prod(variable.shape) for variable in backbone.variables)
    backbone.prepack_for_inference()
    backbone.prepack_for_inference()  # once more changes nothing
    assert sum(np.prod(variable.shape) for variable in backbone.variables) == size
    for padding_free in (True, False):
        backbone.padding_free = padding_free
        outputs = backbone(tokens, output_hidden_states=True)
        for name in ("sequence_output", "pooled_output"):
            np.testing.assert_allclose(outputs[name], expected[name], atol=2e-5)


@pytest.mark.parametrize("activation", sorted(set(ACTIVATION_NAMES.values())))
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_activations_and_dtypes(tiny_config, activation, dtype):
    import dataclasses

    config = dataclasses.replace(tiny_config, hidden_act=activation)
    backbone = BertBackbone(config, dtype=dtype)
    for variable in backbone.trainable_variables:  # biases too
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.05))
    ids = {"token_ids": tf.constant([[2, 8, 9, 3, 0], [2, 5, 3, 0, 0]])}
    expected = tf.cast(backbone(ids)["sequence_output"], tf.float32)
    backbone.prepack_for_inference()
    outputs = tf.cast(backbone(ids)["sequence_output"], tf.float32)
    np.testing.assert_allclose(outputs, expected, atol=1e-5 if dtype == "float32" else 0.06)


def test_no_training_after_freezing_whatever_is_packed(tiny_config, tiny_vocabulary):
    model = BertTextClassifier(
        BertBackbone(tiny_config, dtype="mixed_bfloat16"),
        dtype="mixed_bfloat16",
        tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
    )
    model.compile(AdamWeightDecay(1e-3))
    model.fit(TEXTS, [0, 1, 0, 1], verbose=0)
    model.prepack_for_inference()
    with pytest.raises(UserError, match="to be trained"):
        model.fit(TEXTS, [0, 1, 0, 1], verbose=0)


def test_predict_after_predict_takes_the_packed_kernels(classifier):
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.prepack_for_inference()
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), expected, atol=1e-5)
    assert all(block.intermediate.kernel is None for block in classifier.backbone.encoder.blocks)


@pytest.mark.full
def test_in_a_saved_model(classifier, tmp_path):
    classifier.prepack_for_inference()
    module = tf.Module()
    module.model = classifier
    module.run = tf.function(classifier.call, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, tmp_path / "saved")
    again = tf.saved_model.load(tmp_path / "saved")
    np.testing.assert_allclose(
        again.run(tf.constant(TEXTS)), classifier.predict(TEXTS, verbose=0), atol=1e-5
    )


@pytest.mark.parametrize(
    "prepack",
    [
        lambda model: model.prepack_for_inference(),
        lambda model: model.backbone.prepack_for_inference(),
    ],
    ids=["model", "backbone"],
)
def test_no_step_that_was_traced_before_is_taken_after(classifier, prepack):
    labels = [0, 1, 0, 1]
    classifier.fit(TEXTS, labels, verbose=0)
    loss = classifier.evaluate(TEXTS, labels, verbose=0)
    before = classifier.predict(TEXTS, verbose=0)
    prepack(classifier)
    for train in (classifier.fit, classifier.train_on_batch):
        with pytest.raises(UserError, match="to be trained"):
            train(classifier.tokenize(TEXTS), np.array(labels))
    np.testing.assert_allclose(classifier.predict(TEXTS, verbose=0), before, atol=1e-5)
    np.testing.assert_allclose(classifier.evaluate(TEXTS, labels, verbose=0), loss, atol=1e-5)
    # Both steps read the packed kernels, not those that they were traced with.
    kernel = classifier.backbone.encoder.blocks[0].intermediate.packed_kernel
    kernel.assign(-3.0 * kernel)
    assert np.abs(classifier.predict(TEXTS, verbose=0) - before).max() > 1e-3
    assert np.abs(classifier.evaluate(TEXTS, labels, verbose=0) - loss).max() > 1e-4


def test_weights_are_saved_and_loaded_as_those_of_a_plain_model(
    classifier, tiny_config, tiny_vocabulary, tmp_path
):
    plain = BertTextClassifier(
        BertBackbone(tiny_config), tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False)
    )
    plain.save_weights(tmp_path / "plain.weights.h5")
    expected = vectors(plain)
    classifier.prepack_for_inference()
    classifier.load_weights(tmp_path / "plain.weights.h5")
    np.testing.assert_allclose(vectors(classifier), expected, atol=1e-5)
    classifier.save_weights(tmp_path / "prepacked.weights.h5")
    for weight in plain.weights:
        weight.assign(tf.zeros_like(weight))
    plain.load_weights(tmp_path / "prepacked.weights.h5")
    np.testing.assert_array_equal(vectors(plain), expected)


def test_weights_of_another_size_are_refused(classifier, tiny_config, tmp_path):
    import dataclasses

    wider = BertBackbone(dataclasses.replace(tiny_config, intermediate_size=52))
    wider.save_weights(tmp_path / "wider.weights.h5")
    classifier.prepack_for_inference()
    with pytest.raises(ValueError, match="intermediate must have the shapes"):
        classifier.backbone.load_weights(tmp_path / "wider.weights.h5")


def test_what_needs_the_kernels_is_refused(classifier, tmp_path):
    classifier.prepack_for_inference()
    with pytest.raises(UserError, match="trained"):
        classifier.fit(TEXTS, [0, 1, 0, 1], verbose=0)
    with pytest.raises(UserError, match="checkpoint"):
        classifier.save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match="checkpoint"):
        classifier.backbone.save_pretrained(tmp_path / "backbone")
    with pytest.raises(UserError, match="serialized"):
        classifier.save(tmp_path / "model.keras")
    assert not (tmp_path / "model").exists()


def test_needs_the_native_ops(classifier):
    with ops.backend("reference"), pytest.raises(UserError, match="native"):
        classifier.prepack_for_inference()
    assert not classifier.backbone.is_prepacked


def vectors(model):
    return model.backbone({"token_ids": tf.constant([[2, 8, 9, 3]])})["pooled_output"].numpy()


def test_assignment_reaches_the_packed_kernels(classifier, tiny_config, tiny_vocabulary):
    other = BertTextClassifier(
        BertBackbone(tiny_config), tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False)
    )
    unpacked = other.get_weights()
    first_kernel = classifier.backbone.encoder.blocks[0].intermediate.kernel
    for model in (classifier, other):
        model.prepack_for_inference()
    assert all(variable is not first_kernel for variable in classifier.variables)
    before = vectors(classifier)
    with pytest.raises(ValueError):  # the number or the shapes of the weights differ
        classifier.set_weights(unpacked)
    classifier.set_weights(other.get_weights())
    np.testing.assert_array_equal(vectors(classifier), vectors(other))
    # A function that was traced before sees it too.
    traced = tf.function(classifier.backbone)
    inputs = {"token_ids": tf.constant([[2, 8, 9, 3]])}
    traced(inputs)
    kernel = classifier.backbone.encoder.blocks[0].intermediate.packed_kernel
    kernel.assign(2.0 * kernel)
    np.testing.assert_allclose(traced(inputs)["pooled_output"], vectors(classifier), atol=1e-6)
    assert np.abs(vectors(classifier) - before).max() > 1e-3


def test_load_weights_reaches_the_packed_kernels(classifier, tiny_config, tmp_path):
    other = BertBackbone(tiny_config)
    for model in (classifier, other):
        model.prepack_for_inference()
    classifier.backbone.save_weights(tmp_path / "prepacked.weights.h5")
    other.load_weights(tmp_path / "prepacked.weights.h5")
    inputs = {"token_ids": tf.constant([[2, 8, 9, 3]])}
    np.testing.assert_array_equal(other(inputs)["pooled_output"], vectors(classifier))


def test_there_is_no_gradient(classifier):
    classifier.prepack_for_inference()
    with pytest.raises(LookupError, match="inference only"), tf.GradientTape() as tape:
        outputs = classifier.backbone({"token_ids": tf.constant([[2, 8, 3]])})
        loss = tf.reduce_sum(outputs["pooled_output"])
        tape.gradient(loss, classifier.backbone.trainable_variables)


@pytest.mark.parametrize(
    "layers_of",
    [
        lambda backbone: [block.intermediate for block in backbone.encoder.blocks],
        lambda backbone: backbone._flatten_layers(),
    ],
    ids=["one", "all"],
)
def test_another_dtype_is_refused(classifier, layers_of):
    classifier.prepack_for_inference()
    for layer in layers_of(classifier.backbone):
        layer.dtype_policy = keras.DTypePolicy("mixed_bfloat16")
    with pytest.raises(UserError, match="`dtype_policy` must compute in"):
        vectors(classifier)


def test_quantization_is_refused_or_changes_nothing(classifier):
    classifier.prepack_for_inference()
    expected = vectors(classifier)
    with contextlib.suppress(NotImplementedError, ValueError, UserError):
        classifier.backbone.quantize("int8")
    np.testing.assert_allclose(vectors(classifier), expected, atol=1e-6)


def test_under_a_strategy(tiny_config):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        backbone = BertBackbone(tiny_config)
    inputs = {"token_ids": tf.constant([[2, 8, 9, 3]])}
    expected = backbone(inputs)["pooled_output"]
    backbone.prepack_for_inference()
    inside = strategy.run(tf.function(backbone), [inputs])["pooled_output"]
    np.testing.assert_allclose(inside, expected, atol=1e-5)
    kernel = backbone.encoder.blocks[0].intermediate.packed_kernel
    with strategy.scope():
        kernel.assign(2.0 * kernel)
    changed = strategy.run(tf.function(backbone), [inputs])["pooled_output"]
    np.testing.assert_allclose(changed, backbone(inputs)["pooled_output"], atol=1e-6)
    assert np.abs(changed - expected).max() > 1e-3
