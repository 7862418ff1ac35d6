"""Without tensorflow-text, models work on token ids, and the tokenizer says what is missing."""

import platform
import sys

import numpy as np
import pytest

import bert_tf
from bert_tf.text import tensorflow_text

CONFIG = bert_tf.BertConfig(
    vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]


@pytest.fixture(autouse=True)
def blocked(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)  # `import` raises ImportError
    tensorflow_text._part.cache_clear()


def test_models_take_token_ids():
    model = bert_tf.BertTextClassifier(bert_tf.BertBackbone(CONFIG), num_classes=2)
    assert model({"token_ids": np.array([[2, 5, 3]], np.int32)}).shape == (1, 2)


@pytest.mark.parametrize(
    "system,way_out",
    [("Linux", r"pip install 'tensorflow-text==\d+\.\d+\.\*'"), ("Windows", "WSL 2")],
)
def test_the_tokenizer_says_what_is_missing(monkeypatch, system, way_out):
    tokenizer = bert_tf.BertTokenizer(VOCABULARY)
    monkeypatch.setattr(platform, "system", lambda: system)
    with pytest.raises(ImportError, match=f"Tokenization needs the tensorflow-text.*{way_out}"):
        tokenizer(["good"])
