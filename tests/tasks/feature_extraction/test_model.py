"""BertFeatureExtractor: the backbone's states, by layer, without padding."""

import dataclasses

import numpy as np
import pytest

from bert_tf import BertBackbone, BertFeatureExtractor, BertTokenizer
from bert_tf.errors import UserError
from tests.numpy_bert import NumpyBert

TEXTS = ["good film", "", "the bad good film", "a b c d e f g"]


@pytest.fixture(scope="module")
def make_extractor(tiny_config, tiny_vocabulary):
    backbone, tokenizer = BertBackbone(tiny_config), BertTokenizer(tiny_vocabulary, lowercase=False)
    return lambda **options: BertFeatureExtractor(backbone, tokenizer=tokenizer, **options)


@pytest.mark.parametrize(
    "combine,combined",
    [
        ("stack", lambda states: np.stack(states, axis=1)),
        ("concat", lambda states: np.concatenate(states, axis=-1)),
        ("sum", sum),
        ("mean", lambda states: sum(states) / 2),
    ],
)
def test_each_text_gets_its_states(make_extractor, combine, combined):
    extractor = make_extractor(layer_indices=(-1, 0), combine=combine)
    features = extractor.extract(TEXTS, token_budget=16)
    for text, found in zip(TEXTS, features, strict=True):
        tokens = extractor.tokenizer([text])
        states = extractor.backbone(tokens, output_hidden_states=True)["hidden_states"]
        expected = combined([states[2].numpy()[0], states[0].numpy()[0]])
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(features[1]) == 2  # [CLS] [SEP]


def test_one_text_and_pairs(make_extractor):
    extractor = make_extractor(layer_indices=(0, 1, 2))
    assert extractor.extract("good film").shape == (4, 3, 32)
    assert len(extractor.extract((["good"], ["bad film"]))[0]) == 6


@pytest.mark.parametrize("layers,indices", [(6, [-1, -2, -3, -4]), (1, [-1, -2])])
def test_default_layers_of_shallow_encoders(tiny_config, layers, indices):
    backbone = BertBackbone(dataclasses.replace(tiny_config, num_hidden_layers=layers))
    assert BertFeatureExtractor(backbone).layer_indices == indices


def test_real_states_against_float64(minilm):
    extractor = BertFeatureExtractor.from_pretrained(minilm, combine="sum")
    features = extractor.extract(["A dog barks at night.", "Rain"])
    reference = NumpyBert(minilm)
    for text, found in zip(["A dog barks at night.", "Rain"], features):
        ids = extractor.tokenize([text])["token_ids"].numpy()
        states = reference(ids, np.zeros_like(ids), np.ones_like(ids, bool))[2]
        np.testing.assert_allclose(found, sum(states[-4:])[0], atol=2e-5)


@pytest.mark.parametrize(
    "options,words",
    [
        ({"layer_indices": [3]}, r"\[-3, 2\]"),
        ({"layer_indices": []}, "at least one"),
        ({"combine": "max"}, "combine"),
    ],
)
def test_wrong_options_are_refused(make_extractor, options, words):
    with pytest.raises(UserError, match=words):
        make_extractor(**{"layer_indices": (-1,), **options})
