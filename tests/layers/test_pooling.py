"""Vectors of whole sequences: wrong modes are the user's mistake."""

import pytest

from bert_tf.errors import UserError
from bert_tf.layers import SequencePooling


def test_an_unknown_mode():
    with pytest.raises(UserError, match="`mode` must be one of .*mode='sum'"):
        SequencePooling("sum")
