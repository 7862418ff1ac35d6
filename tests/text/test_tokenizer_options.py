"""Options that are set in a tokenizer count from then on, or are refused by name."""

import inspect

import pytest

from bert_tf import BertTokenizer
from bert_tf.errors import UserError
from tests.conformance.task import VOCABULARY

READ_AT_EVERY_CALL = {"max_length": 3, "truncation_side": "left"}


def test_options_that_are_set():
    tokenizer = BertTokenizer(VOCABULARY)
    text = "good bad film"
    tokenizer(text)
    for name, value in READ_AT_EVERY_CALL.items():
        setattr(tokenizer, name, value)
    expected = BertTokenizer(VOCABULARY, **READ_AT_EVERY_CALL)
    assert tokenizer.get_config() == expected.get_config()
    received = tokenizer(text)["token_ids"].numpy().tolist()
    assert received == expected(text)["token_ids"].numpy().tolist() == [2, 7, 3]
    for name, value in {"max_length": 1, "truncation_side": "top"}.items():
        with pytest.raises(UserError, match=name):
            setattr(tokenizer, name, value)


def test_options_that_are_refused():
    """The functions from texts to ids are made with them."""
    tokenizer = BertTokenizer(VOCABULARY)
    for name in inspect.signature(BertTokenizer).parameters:
        if name not in READ_AT_EVERY_CALL:
            before = getattr(tokenizer, name)
            with pytest.raises(UserError, match=rf"`{name}` must be given to.*BertTokenizer.from"):
                setattr(tokenizer, name, False)
            assert getattr(tokenizer, name) == before
    other = BertTokenizer.from_config(tokenizer.get_config() | {"lowercase": False})
    assert other.tokenize(["GOOD"]).to_list() == [[1]]


def test_subclass_with_attributes_of_its_own():
    class Counting(BertTokenizer):
        def __init__(self, vocabulary):
            super().__init__(vocabulary)
            self.calls = 0

        def __call__(self, *args, **kwargs):
            self.calls += 1
            return super().__call__(*args, **kwargs)

    tokenizer = Counting(VOCABULARY)
    tokenizer("good")
    assert tokenizer.calls == 1
