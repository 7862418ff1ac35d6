"""Models whose tokenizers are byte pairs or Unigram: what their users pass is text all the same."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import BertBackbone, BertConfig
from bert_tf.errors import UserError
from bert_tf.text import SubwordTokenizer, load_tokenizer
from bert_tf.training import AdamWeightDecay
from tests.text.subwords import bpe_definition, unigram_definition

MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("g", "o"), ("go", "o"), ("goo", "d")]
MERGES += [("Ġ", "good"), ("f", "i"), ("fi", "l"), ("fil", "m"), ("Ġ", "film"), ("Ġ", "b")]
MERGES += [("Ġb", "a"), ("Ġba", "d"), ("b", "a"), ("ba", "d")]
PIECES = [(f"▁{word}", -2.0 - n) for n, word in enumerate(("the", "good", "bad", "film"))]
PIECES += [(char, -9.0) for char in "▁thegodbafilmrs."]
DEFINITIONS = {"byte pairs": bpe_definition(MERGES), "Unigram": unigram_definition(PIECES)}
TEXTS = ["the good film", "bad film", "the bad.", "good good"]
LABELS = [1, 0, 0, 1]


@pytest.fixture(params=["byte pairs", pytest.param("Unigram", marks=pytest.mark.full)])
def make(request):
    tokenizer = SubwordTokenizer(DEFINITIONS[request.param])
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=40,
        type_vocab_size=1,
        pad_token_id=1,
        model_type="roberta",
        position_offset=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )

    def make(model_class, **options):
        keras.utils.set_random_seed(3)
        return model_class(BertBackbone(config), tokenizer=tokenizer, **options)

    return make


def test_a_classifier_from_text_to_a_served_model(make, tmp_path):
    model = make(bert_tf.BertTextClassifier, labels=["bad", "good"])
    model.compile(AdamWeightDecay(3e-3, bias_correction=True), metrics=["accuracy"])
    model.fit(TEXTS, LABELS, batch_size=4, epochs=30, verbose=0)
    assert model.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["accuracy"] == 1.0
    expected = model.predict((TEXTS, TEXTS), verbose=0)
    model.save_pretrained(tmp_path / "pretrained")
    model.save(tmp_path / "model.keras")
    assert type(load_tokenizer(tmp_path / "pretrained")) is SubwordTokenizer
    assert json.loads((tmp_path / "pretrained" / "config.json").read_text())["model_type"] == (
        "roberta"
    )
    for path in (tmp_path / "pretrained", tmp_path / "model.keras"):
        opened = bert_tf.BertTextClassifier.from_pretrained(path)
        np.testing.assert_allclose(opened.predict((TEXTS, TEXTS), verbose=0), expected, atol=1e-6)
    keras.saving.load_model(tmp_path / "model.keras")
    served = tf.saved_model.load(model.export(tmp_path / "served")).signatures["serving_default"]
    np.testing.assert_allclose(
        served(text=tf.constant(TEXTS))["logits"], model.predict(TEXTS, verbose=0), atol=1e-5
    )


def test_a_question_is_packed_as_its_tokenizer_packs_pairs(make):
    model = make(bert_tf.BertQuestionAnswerer, max_length=24, doc_stride=8)
    contexts = ["the good film the bad film the good the bad film good", "bad."]
    answers = model.answer(["good", "film"], contexts)
    for answer, context in zip(answers, contexts):
        assert answer.text in context and answer.text == answer.text.strip() != ""
    tokenizer = model.tokenizer
    rows = model.preprocessor.encode(model.preprocessor.read((["good"], ["bad film"])))
    batch = rows.batch(np.array([0]))
    expected = tokenizer(["good"], ["bad film"])
    np.testing.assert_array_equal(batch["token_ids"], expected["token_ids"])
    np.testing.assert_array_equal(batch["segment_ids"], expected["segment_ids"])


def test_words_are_found_again(make):
    model = make(bert_tf.BertTokenClassifier, labels=["O", "X"])
    model.compile(AdamWeightDecay(3e-3, bias_correction=True))
    words, tags = [["the", "good", "film"], ["bad"]], [["O", "X", "O"], ["X"]]
    model.fit(words, tags, epochs=40, verbose=0)
    assert model.predict_tags(words) == tags
    (spans,) = model.tag(["the good film"])
    assert [span.text for span in spans if span.label == "X"] == ["good"]


def test_a_masked_word_is_hidden_and_guessed(make):
    model = make(bert_tf.BertMaskedLM)
    model.compile(AdamWeightDecay(3e-3, bias_correction=True))
    model.fit(["the good film"] * 320, batch_size=16, verbose=0)
    ((candidates,),) = model.fill_mask(["the <mask> film"])
    assert candidates[0].piece.strip("Ġ▁ ") == "good"


def test_sentences_of_several_segments_are_refused(make):
    model = make(bert_tf.BertTextClassifier, num_classes=2)
    ids = tf.constant([[0, 5, 2]])
    with pytest.raises((UserError, tf.errors.InvalidArgumentError), match="segment_ids"):
        model({"token_ids": ids, "segment_ids": tf.ones_like(ids)})
