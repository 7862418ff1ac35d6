"""Task models on a weighted sum of all layers: the numbers, a frozen encoder, files, refusals."""

import dataclasses

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.adapt import DistillationModel, student_from_teacher
from bert_tf.errors import UserError
from bert_tf.tasks.text_classification.cached_features import cached_features
from tests.conformance.padding import moved
from tests.conformance.task import CLASSES, CONFIG, TEXTS, encoded

# With larger weights the features of the texts differ enough for a linear classifier.
ENCODER = dataclasses.replace(CONFIG, initializer_range=0.5)
TOKENS = encoded(TEXTS)
WORDS = np.where(TOKENS["padding_mask"], TOKENS["token_ids"] % 2, -100).astype(np.int32)


def text_classifier(config=CONFIG, seed=4, **options):
    keras.utils.set_random_seed(seed)
    options = {"num_classes": 2, "use_scalar_mix": True, "dropout": 0.0, **options}
    return bert_tf.BertTextClassifier(bert_tf.BertBackbone(config), **options)


def token_classifier(config=CONFIG, **options):
    keras.utils.set_random_seed(4)
    options = {"num_classes": 2, "use_scalar_mix": True, "dropout": 0.0, **options}
    return bert_tf.BertTokenClassifier(bert_tf.BertBackbone(config), **options)


def mixed(model, scalars, gamma):
    """Sets the weights of the mix; returns the mix of all layers, float64 `[B, T, H]`."""
    model.scalar_mix.scalars.assign(scalars)
    model.scalar_mix.gamma.assign([gamma])
    states = model.backbone(TOKENS, output_hidden_states=True)["hidden_states"]
    shares = np.exp(scalars) / np.exp(scalars).sum()
    return gamma * np.einsum("k,kbth->bth", shares, np.array(states, np.float64))


def dense(layer, inputs):
    return inputs @ np.float64(layer.kernel.numpy()) + layer.bias.numpy()


def test_the_first_token_is_the_first_real_one():
    model = text_classifier()
    for side in ("left", "middle"):
        np.testing.assert_allclose(model(moved(TOKENS, side)[0]), model(TOKENS), atol=1e-5)


def test_against_numpy():
    mask = TOKENS["padding_mask"][..., np.newaxis]
    model = text_classifier(ENCODER, pooling="mean")
    states = mixed(model, [0.5, -1.0, 1.5], 1.3)
    expected = dense(model.classifier, (states * mask).sum(axis=1) / mask.sum(axis=1))
    np.testing.assert_allclose(model.predict(TOKENS, verbose=0), expected, atol=1e-5)
    model = text_classifier(ENCODER)
    first = mixed(model, [0.5, -1.0, 1.5], 1.3)[:, 0]
    expected = dense(model.classifier, np.tanh(dense(model.backbone.pooler.dense, first)))
    np.testing.assert_allclose(model.predict(TOKENS, verbose=0), expected, atol=1e-5)
    words = token_classifier(ENCODER)
    expected = dense(words.classifier, mixed(words, [0.5, -1.0, 1.5], 1.3))
    np.testing.assert_allclose(words.predict(TOKENS, verbose=0), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "labels"),
    [(text_classifier, CLASSES), (token_classifier, WORDS)],
    ids=["text", "words"],
)
def test_a_frozen_encoder_and_files(make, labels, tmp_path):
    options = {"pooling": "max"} if make is text_classifier else {}
    model = make(ENCODER, **options)
    bert_tf.training.freeze_layers(model, 2)
    encoder = [*model.backbone.embeddings.weights, *model.backbone.encoder.weights]
    before = [weight.numpy() for weight in encoder]
    model.compile(bert_tf.training.AdamWeightDecay(0.05, bias_correction=True))
    losses = model.fit(TOKENS, labels, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    for weight, values in zip(encoder, before, strict=True):
        np.testing.assert_array_equal(weight, values)
    mix = model.scalar_mix
    assert np.ptp(mix.scalars.numpy()) > 0.01 and abs(mix.gamma.numpy()[0] - 1) > 0.01
    expected = model.predict(TOKENS, verbose=0)
    for format in ("huggingface", "tf1", "bert_tf"):
        model.save_pretrained(tmp_path / format, format=format)
        again = type(model).from_pretrained(tmp_path / format)
        assert again.use_scalar_mix and again.untrained_heads == ()
        np.testing.assert_array_equal(again.scalar_mix.scalars, mix.scalars)
        np.testing.assert_allclose(again.predict(TOKENS, verbose=0), expected, atol=1e-6)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(TOKENS, verbose=0), expected, atol=1e-6)


def test_a_new_mix_on_the_first_blocks_of_a_checkpoint(tmp_path):
    bert_tf.BertBackbone(CONFIG).save_pretrained(tmp_path)
    options = {"num_encoder_layers": 1, "use_scalar_mix": True, "pooling": "mean"}
    model = bert_tf.BertTextClassifier.from_pretrained(tmp_path, **options)
    assert model.scalar_mix.scalars.shape == (2,)
    assert set(model.untrained_heads) == {"classifier", "scalar mix"}


@pytest.mark.usefixtures("eager_steps")
def test_distillation_with_a_mix():
    plain = text_classifier(pooling="mean", use_scalar_mix=False)
    mix = text_classifier(pooling="mean", seed=5)
    plain.untrained_heads = mix.untrained_heads = ()
    weights = {"logits_weight": 1.0, "hidden_weight": 1.0, "attention_weight": 1.0}
    for student, teacher in ((mix, plain), (plain, text_classifier(pooling="mean", seed=6))):
        model = DistillationModel(student, teacher, **weights)
        model.compile(bert_tf.training.AdamWeightDecay(0.01, bias_correction=True))
        losses = model.fit(TOKENS, epochs=3, verbose=0).history["loss"]
        assert losses[-1] < losses[0]


def test_what_does_not_go_with_a_mix():
    model = text_classifier(pooling="mean")
    with pytest.raises(UserError, match="`use_scalar_mix` of the model must be False"):
        cached_features(model, ["good film"])
    with pytest.raises(UserError, match="`use_scalar_mix` of the teacher must be False"):
        student_from_teacher(model, num_hidden_layers=1)
    other = text_classifier(pooling="mean", both_orders=True)
    with pytest.raises(UserError, match="`both_orders` must be False"):
        DistillationModel(model, other)
