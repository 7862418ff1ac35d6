"""A SavedModel in a program on TensorFlow's C API, with no Python in it: MiniLM's first blocks."""

import pathlib

import numpy as np
import pytest
import tensorflow_text

from bert_tf import BertSentenceEncoder
from bert_tf.ops import loading
from bert_tf.serving import export
from tests.serving.c_reader import CReader
from tests.serving.operations import operations

SENTENCES = [
    "A man is eating food.",
    "Two dogs run across a wet field, chasing a ball.",
    "Für Élise was found in 1867, 40 years after Beethoven’s death.",
    "",
    "今天天气很好。",
]
# Of tensorflow-text's `ops_lib`, which TF Serving links in (SUPPORTED_TENSORFLOW_OPS in
# tensorflow_serving/model_servers/BUILD): fast_bert_normalizer_cc and fast_wordpiece_tokenizer_cc.
TEXT_LIBRARIES = [
    pathlib.Path(tensorflow_text.__file__).parent / "python" / "ops" / name
    for name in ("_fast_bert_normalizer.so", "_fast_wordpiece_tokenizer.so")
]
TEXT_OPERATIONS = {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets"}
OWN_LIBRARY = loading._LIBRARY_PATH


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return CReader(tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="module")
def encoder(minilm):
    return BertSentenceEncoder.from_pretrained(minilm, num_encoder_layers=1)


@pytest.fixture(scope="module")
def vectors(encoder):
    return encoder.encode(SENTENCES)


@pytest.fixture(scope="module")
def portable(encoder, tmp_path_factory):
    return pathlib.Path(export(encoder, tmp_path_factory.mktemp("portable")))


@pytest.mark.full
def test_portable_model_from_strings_and_from_ids(reader, encoder, vectors, portable):
    result = reader.run(portable, "serving_default", {"text": SENTENCES}, TEXT_LIBRARIES)
    np.testing.assert_allclose(result["vector"], vectors, atol=1e-5)
    tokens = {name: value.numpy() for name, value in encoder.tokenize(SENTENCES).items()}
    result = reader.run(portable, "tokens", tokens, TEXT_LIBRARIES)
    np.testing.assert_allclose(result["vector"], vectors, atol=1e-5)


def test_portable_model_has_only_what_tf_serving_links(reader, portable):
    found = operations(portable)
    assert found > TEXT_OPERATIONS
    # Every other one has a kernel in TensorFlow's C++ library: none comes with Python.
    assert set(reader.without_kernel(found)) == TEXT_OPERATIONS
    assert reader.without_kernel(found, TEXT_LIBRARIES) == []


@pytest.mark.skipif(not OWN_LIBRARY.exists(), reason="needs the native ops")
def test_fused_operations_come_with_their_library(reader, encoder, vectors, tmp_path):
    path = pathlib.Path(export(encoder, tmp_path, portable=False))
    own = {name for name in operations(path) if name.startswith("BertTf>")}
    assert own and set(reader.without_kernel(own)) == own
    message = reader.fails(path, "serving_default", {"text": SENTENCES}, TEXT_LIBRARIES)
    assert "BertTf>" in message
    result = reader.run(
        path, "serving_default", {"text": SENTENCES}, [*TEXT_LIBRARIES, OWN_LIBRARY]
    )
    np.testing.assert_allclose(result["vector"], vectors, atol=1e-5)


def test_bad_text_is_an_error_and_not_a_crash(reader, portable):
    bad = {"text": [b"good", b"\xff"]}
    message = reader.fails(portable, "serving_default", bad, TEXT_LIBRARIES)
    assert "valid UTF-8" in message and "[1]" in message
