"""Spaces as they are written."""

import pytest
import tensorflow as tf

from bert_tf.text.spacing import with_written_spaces


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
