"""Vectors for the projector against the backbone itself."""

import dataclasses

import numpy as np
import pytest

from bert_tf import (
    BertBackbone,
    BertFeatureExtractor,
    BertPretrainer,
    BertTextClassifier,
    BertTokenizer,
)
from bert_tf.errors import UserError
from bert_tf.inspection import project_pieces, project_texts, project_word
from tests.conformance.task import make as make_task
from tests.conformance.tasks import TASKS, tasks

TEXTS = ["the bad film", "good film .", "a film film abc film", "no word"]


@pytest.fixture(scope="module")
def make(tiny_config, tiny_vocabulary):
    def make(vocabulary=tiny_vocabulary, max_length=12, **options):
        tokenizer = BertTokenizer(vocabulary, lowercase=False, **options)
        config = dataclasses.replace(tiny_config, vocab_size=len(vocabulary))
        backbone = BertBackbone(config)
        return BertFeatureExtractor(backbone, [-1], tokenizer=tokenizer, max_length=max_length)

    return make


def states_of(model, text):
    """The hidden states of one text, each `[T, H]`."""
    outputs = model.backbone(model.tokenize([text]), output_hidden_states=True)
    return [values[0].numpy() for values in outputs["hidden_states"]]


def test_pieces(make, tiny_vocabulary):
    model = make()
    vectors, metadata = project_pieces(model)
    np.testing.assert_array_equal(vectors, model.backbone.embeddings.word_embeddings)
    assert metadata["piece"] == tiny_vocabulary and list(metadata["id"]) == list(range(64))
    assert project_pieces(model, most=3).vectors.shape == (3, 32)
    odd = [*tiny_vocabulary[:-2], "a\u200bb", "c\td"]
    assert project_pieces(make(odd)).metadata["piece"][-2:] == [r"a\u200bb", r"c\td"]


def test_pieces_of_a_quantized_model(make):
    model = make()
    before = project_pieces(model).vectors
    model.quantize("int8")
    np.testing.assert_allclose(project_pieces(model).vectors, before, atol=2e-3)


@pytest.mark.parametrize("pooling", ["mean", "pooler"])
def test_texts(make, pooling):
    model = make()
    vectors, metadata = project_texts(model, TEXTS, labels=[1, 2, 3, 4], pooling=pooling)
    assert metadata == {"text": TEXTS, "label": [1, 2, 3, 4]}
    for text, vector in zip(TEXTS, vectors):
        outputs = model.backbone(model.tokenize([text]))
        mean = outputs["sequence_output"][0].numpy().mean(axis=0)
        expected = mean if pooling == "mean" else outputs["pooled_output"][0]
        np.testing.assert_allclose(vector, expected, atol=1e-5)


@tasks("text", few=True)
def test_any_task(name):
    """Whatever the examples of a task are, texts and pairs are rows of the tokenizer."""
    model = make_task(TASKS[name])
    texts = ["the bad film.", "a b c d e", "good " * 40]
    vectors, _ = project_texts(model, texts)
    pair = project_texts(model, (["good"], ["bad film"])).vectors
    rows = [*(((text,), row) for text, row in zip(texts, vectors)), (("good", "bad film"), pair[0])]
    for columns, vector in rows:
        tokens = model.tokenizer(
            *([text] for text in columns), max_length=model.max_sequence_length
        )
        expected = model.backbone(tokens)["sequence_output"][0].numpy().mean(axis=0)
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    places = project_word(model, "good", texts)["layer_01"].vectors
    assert len(places) == model.max_sequence_length - 2


def test_three_texts_are_no_pair(make):
    with pytest.raises(UserError, match="must have 1 or 2 texts. Received: 3"):
        project_texts(make(), (["a"], ["b"], ["c"]))


def test_pairs(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary)
    model = BertTextClassifier(BertBackbone(tiny_config), tokenizer=tokenizer, num_classes=2)
    vectors, metadata = project_texts(model, (["good"], ["bad film"]))
    assert metadata == {"text": ["good"], "pair": ["bad film"]} and vectors.shape == (1, 32)


def test_a_word(make):
    """`abc` is three pieces; the place of each `film` in its row is known."""
    model = make()
    found = project_word(model, "FILM", TEXTS, labels="ABCD")
    assert list(found) == ["embeddings", "layer_00", "layer_01"]
    for number, projection in enumerate(found.values()):
        assert projection.metadata["label"] == ["A", "B", "C", "C", "C"]
        assert projection.metadata["word"] == ["film"] * 5
        rows = [(0, 3), (1, 2), (2, 2), (2, 3), (2, 7)]
        expected = [states_of(model, TEXTS[text])[number][place] for text, place in rows]
        np.testing.assert_allclose(projection.vectors, expected, atol=1e-5)
    (pieces,) = project_word(model, "abc", TEXTS)["layer_01"].vectors
    np.testing.assert_allclose(pieces, states_of(model, TEXTS[2])[2][4:7].mean(0), atol=1e-5)


@pytest.mark.parametrize(
    "side,rows", [("right", [(2, 2), (2, 3)]), ("left", [(2, 1), (2, 5)]), ("middle", [(2, 5)])]
)
def test_places_that_are_cut_are_left_out(make, side, rows):
    """7 pieces, of which 5 are kept: the first, the last, or the first and the last 4."""
    model = make(max_length=7, truncation_side=side)
    tokens = model.tokenize([TEXTS[2]])["token_ids"][0].numpy()
    film = model.tokenizer.token_to_id("film")
    assert np.flatnonzero(tokens == film).tolist() == [place for _, place in rows]
    vectors = project_word(model, "film", TEXTS[2:])["layer_01"].vectors
    expected = [states_of(model, TEXTS[text])[2][place] for text, place in rows]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_words_end_where_letters_end_but_not_ideographs(make, tiny_vocabulary):
    model = make([*tiny_vocabulary[:-2], "银", "行"])
    texts = ["filmed", "a film-film", "中银行人", "film_x"]
    assert project_word(model, "film", texts)["layer_00"].metadata["text"] == ["a film-film"] * 2
    assert project_word(model, "银行", texts)["layer_00"].metadata["word"] == ["银行"]


def test_refusals(make):
    model = make()
    for call in (
        lambda: project_word(model, "absent", TEXTS),
        lambda: project_word(model, " ", TEXTS),
        lambda: project_word(model, "film", (["a"], ["b"])),
        lambda: project_word(model, "film", TEXTS, labels=[1]),
        lambda: project_texts(model, TEXTS, labels=[1]),
        lambda: project_texts(model, TEXTS, pooling="max"),
        lambda: project_pieces(model, most=0),
        lambda: project_pieces(model, most=True),
        lambda: project_pieces(BertFeatureExtractor(model.backbone, [-1])),
    ):
        with pytest.raises(UserError, match="Received"):
            call()


def test_senses_of_a_word_with_real_weights(minilm):
    """The two senses of `bank` are nearer to themselves than to each other at the last layer."""
    model = BertFeatureExtractor.from_pretrained(minilm)
    texts = [
        "He sat on the bank of the river and fished.",
        "The grassy bank of the stream was muddy.",
        "The bank lent him money for the house.",
        "She opened an account at the bank.",
    ]
    found = project_word(model, "bank", texts, ["shore", "shore", "money", "money"])

    def gap(name):
        vectors = found[name].vectors
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = vectors @ vectors.T
        return min(cosines[0, 1], cosines[2, 3]) - cosines[:2, 2:].max()

    assert gap("layer_05") > 0 > gap("embeddings")


@pytest.mark.parametrize("kind", [BertPretrainer, BertTextClassifier])
@pytest.mark.parametrize(
    "project",
    [
        project_pieces,
        lambda model: project_texts(model, ["film"]),
        lambda model: project_word(model, "film", ["film"]),
    ],
    ids=["pieces", "texts", "word"],
)
def test_a_model_without_a_tokenizer(tiny_config, kind, project):
    model = kind(BertBackbone(tiny_config))
    message = f"`model` must be a task model with a tokenizer. Received: a {kind.__name__}"
    with pytest.raises(UserError, match=message):
        project(model)
