"""Cached features: the head learns the same as after a frozen backbone."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.tasks.text_classification.cached_features import ClassifierHead, cached_features
from bert_tf.training import AdamWeightDecay

TEXTS = ["good film", "bad film", "the good.", "the bad. a b c"] * 8
LABELS = np.array([1, 0, 1, 0] * 8)


@pytest.fixture(scope="module")
def make_classifier(tiny_config, tiny_vocabulary):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )

    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)

    def make(pooling):
        keras.utils.set_random_seed(5)
        return BertTextClassifier(BertBackbone(config), pooling=pooling, tokenizer=tokenizer)

    return make


@pytest.mark.parametrize("pooling", [pytest.param("cls", marks=pytest.mark.full), "mean_max"])
def test_head_learns_as_after_a_frozen_backbone(make_classifier, pooling):
    frozen, cached = make_classifier(pooling), make_classifier(pooling)
    frozen.backbone.trainable = False
    frozen.compile(AdamWeightDecay(1e-2), metrics=["accuracy"])
    options = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}
    expected = frozen.fit(TEXTS, LABELS, **options).history

    features = cached_features(cached, TEXTS)
    head = ClassifierHead(cached)
    head.compile(AdamWeightDecay(1e-2), metrics=["accuracy"])
    history = head.fit(features, LABELS, **options).history
    for name in ("loss", "accuracy", "gradient_norm"):
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-4)
    np.testing.assert_allclose(cached.classifier.kernel, frozen.classifier.kernel, atol=1e-5)
    # The classifier has learnt it too.
    np.testing.assert_allclose(
        cached.predict(TEXTS, verbose=0), head.predict(features, verbose=0), atol=1e-5
    )


def test_features_are_what_the_classifier_sees(make_classifier):
    model = make_classifier("mean")
    features = cached_features(model, TEXTS[:4])
    for text, vector in zip(TEXTS, features):
        states = model.backbone(model.tokenizer([text]))["sequence_output"].numpy()[0]
        np.testing.assert_allclose(vector, states.mean(axis=0), atol=1e-5)
