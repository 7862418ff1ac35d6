"""Prompts before texts, and vectors of which the first dimensions are kept."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertSentenceEncoder
from bert_tf.errors import CheckpointError, UserError

PROMPTS = {"query": "query: ", "document": "passage: "}
TEXTS = ["A dog barks.", "", "Rates rose – again."]


@pytest.fixture(scope="module")
def first_block(minilm, tmp_path_factory):
    """A checkpoint of MiniLM's first block."""
    directory = tmp_path_factory.mktemp("first_block")
    BertSentenceEncoder.from_pretrained(minilm, num_encoder_layers=1).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def encoder(first_block):
    return BertSentenceEncoder.from_pretrained(first_block, prompts=PROMPTS)


@pytest.mark.usefixtures("eager_steps")
def test_a_prompt_is_a_part_of_the_text(encoder):
    expected = encoder.encode(["query: " + text for text in TEXTS])
    for prompt in ({"prompt_name": "query"}, {"prompt": "query: "}):
        np.testing.assert_array_equal(encoder.encode(TEXTS, **prompt), expected)
    np.testing.assert_allclose(
        encoder.encode(TEXTS[0], prompt_name="query"), expected[0], atol=1e-6
    )
    assert np.abs(encoder.encode(TEXTS) - expected).max() > 0.01


@pytest.mark.usefixtures("eager_steps")
def test_the_default_prompt(encoder, first_block, tmp_path):
    other = BertSentenceEncoder.from_pretrained(
        first_block, prompts=PROMPTS, default_prompt_name="document"
    )
    expected = encoder.encode(TEXTS, prompt_name="document")
    np.testing.assert_array_equal(other.encode(TEXTS), expected)
    np.testing.assert_array_equal(other.encode(TEXTS, prompt=""), encoder.encode(TEXTS))
    served = tf.saved_model.load(other.export(tmp_path)).signatures["serving_default"]
    vectors = served(text=tf.constant(TEXTS))["vector"]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize("format", ["huggingface", "bert_tf"])
def test_saved_with_the_model(first_block, tmp_path, format):
    options = {"prompts": PROMPTS, "default_prompt_name": "query", "truncate_dim": 100}
    encoder = BertSentenceEncoder.from_pretrained(first_block, **options)
    encoder.save_pretrained(tmp_path, format=format)
    written = json.loads((tmp_path / "config_sentence_transformers.json").read_text())
    assert written["prompts"] == PROMPTS and written["default_prompt_name"] == "query"
    opened = BertSentenceEncoder.from_pretrained(tmp_path)
    assert (opened.prompts, opened.default_prompt_name) == (PROMPTS, "query")
    np.testing.assert_allclose(opened.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_truncated_vectors(encoder, first_block):
    whole = encoder.encode(TEXTS)
    expected = whole[:, :64] / np.linalg.norm(whole[:, :64], axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(TEXTS, truncate_dim=64), expected, atol=1e-6)
    shorter = BertSentenceEncoder.from_pretrained(first_block, truncate_dim=64)
    assert shorter.vector_size == 64
    np.testing.assert_allclose(shorter.encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"prompt_name": "questions"}, "`prompt_name` must be"),
        ({"prompt_name": "query", "prompt": "query: "}, "At most one of"),
        ({"truncate_dim": 0}, r"`truncate_dim` must be in \[1, 384\]"),
        ({"truncate_dim": 385}, r"`truncate_dim` must be in \[1, 384\]"),
    ],
)
def test_what_has_no_meaning_is_refused(encoder, options, message):
    with pytest.raises(UserError, match=message):
        encoder.encode(TEXTS, **options)


def test_a_default_without_a_prompt(first_block):
    with pytest.raises(UserError, match="`default_prompt_name` must be"):
        BertSentenceEncoder.from_pretrained(first_block, default_prompt_name="query")


@pytest.mark.parametrize("prompts", [["query: "], {"query": 1}, "query: "])
def test_damaged_files_are_refused(encoder, prompts, tmp_path):
    encoder.save_pretrained(tmp_path)
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": prompts}))
    with pytest.raises(CheckpointError, match="config_sentence_transformers.json"):
        BertSentenceEncoder.from_pretrained(tmp_path)


def test_prompts_that_are_not_pooled_are_refused(encoder, tmp_path):
    encoder.save_pretrained(tmp_path)
    path = tmp_path / "1_Pooling" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "include_prompt": False}))
    with pytest.raises(CheckpointError, match="include_prompt=false"):
        BertSentenceEncoder.from_pretrained(tmp_path)
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    BertSentenceEncoder.from_pretrained(tmp_path)


def test_any_program_uses_the_default_prompt(first_block, encoder):
    other = BertSentenceEncoder.from_pretrained(
        first_block, prompts=PROMPTS, default_prompt_name="query"
    )
    expected = encoder.encode(TEXTS, prompt_name="query")
    np.testing.assert_array_equal(other.predict_decoded(TEXTS), expected)
