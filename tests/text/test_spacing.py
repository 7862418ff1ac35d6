"""Spaces as they are written."""

import pytest
import tensorflow as tf

from bert_tf.text.spacing import with_written_spaces, without_tokenization_spaces


@pytest.mark.parametrize(
    "words, written",
    [
        ("he didn ' t ( really ) say so .", "he didn't (really) say so."),
        ("god ’ s son ; and , lo !", "god’s son; and, lo!"),
        ("a well - known 3 - 4", "a well-known 3 - 4"),
        ("你 好 ， 世 界 ！", "你好，世界！"),
        ("表 5 的 mtu 值", "表 5 的 mtu 值"),
        ("", ""),
    ],
)
def test_written(words, written):
    assert with_written_spaces(tf.constant([words])).numpy()[0].decode() == written


def test_clean_up_as_in_hugging_face():
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    base = transformers.PreTrainedTokenizerBase
    texts = ["is n't it ' s ' 've ?", "a . . b , c ! 'm 're *.+? x .5", "he 's ' ' ' n't", "", " ."]
    received = without_tokenization_spaces(tf.constant(texts)).numpy()
    expected = [base.clean_up_tokenization(None, text) for text in texts]
    assert [text.decode() for text in received] == expected
