"""Eager calls: what is traced, and that what is chosen for a text gives the ids of any graph."""

import concurrent.futures
import copy
import pickle
import random
import string
import threading

import keras
import pytest
import tensorflow as tf

from bert_tf.text import BertTokenizer, packing
from tests.text import fuzz

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "#NUM#"]
CHARACTERS = [*string.ascii_letters, *string.punctuation, "é", "中", "σ"]
OPTIONS = [
    {"lowercase": True},
    {"lowercase": False, "split_special_tokens": False, "number_token": "#NUM#"},
]


def vocabulary_of(name):
    """A vocabulary of this test's own: tokenizers of the same pieces share what is traced."""
    return [*SPECIAL, name, *CHARACTERS, *(f"##{char}" for char in string.ascii_letters)]


@pytest.fixture
def traced(monkeypatch):
    """What was given to `packing.pack`, which every trace of rows calls once."""
    calls, pack = [], packing.pack

    def recorded(*args):
        calls.append(args)
        return pack(*args)

    monkeypatch.setattr(packing, "pack", recorded)
    return calls


def test_nothing_is_traced_twice(traced):
    tokenizer = BertTokenizer(vocabulary_of("traced"))
    expected = 0
    for texts in ("a b", "é b"):  # which need different graphs
        for options in ({"ragged": True}, {}, {"padding": 8}, {"padding": "max_length"}):
            expected += 1
            for repeats in (1, 2, 40):
                for size in (1, 2, 5):
                    for max_length in (3, 7):
                        tokenizer([texts * repeats] * size, max_length=max_length, **options)
            assert len(traced) == expected, (texts, options)
    for size in (1, 2, 5):
        tokenizer(["a"] * size, ["b c"] * size, max_length=7)
        tokenizer.truncation_side = "right" if size < 5 else "left"
    assert len(traced) == expected + 1
    tokenizer(["a"], ["b c"], max_length=7)
    assert len(traced) == expected + 2
    other = BertTokenizer(vocabulary_of("traced"), truncation_side="left")
    other(["a b"], ["c"], max_length=4)
    assert len(traced) == expected + 2


def test_threads(traced):
    tokenizer = BertTokenizer(vocabulary_of("threads"))
    barrier = threading.Barrier(8)

    def tokenize(number):
        barrier.wait()
        text = ["a b", "é b"][number % 2]
        rows = tokenizer([text] * (number + 1), ["s"] * (number + 1), ragged=True)["token_ids"]
        return rows.to_list(), tokenizer.tokenize_with_offsets([text]).char_ends.to_list()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(tokenize, range(8)))
    assert len(traced) == 2
    a, b, e, s = (tokenizer.token_to_id(piece) for piece in "abes")
    for number, (rows, ends) in enumerate(results):
        assert rows == [[2, (a, e)[number % 2], b, 3, s, 3]] * (number + 1)
        assert ends == [[1, 3]]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_chosen_has_the_ids_of_the_graph(options):
    tokenizer = BertTokenizer(vocabulary_of("chosen"), **options)
    generator = random.Random(0)
    ascii_texts = [*map(fuzz.random_ascii, [generator] * 60), "a\tb\r\n[MASK] 3.14 A's"]
    ascii_texts = ["".join(filter(lambda c: ord(c) > 31 or c in "\t\n\r", t)) for t in ascii_texts]
    texts = [fuzz.random_string(generator) for _ in range(200)]
    short = sorted(texts, key=len)[:40]
    model = tokenizer._graphs.model
    batches = [ascii_texts, short, texts, ["", ""], []]
    chosen = [model.for_texts([tf.constant(batch, tf.string)]) for batch in batches]
    assert len({*chosen}) == 3 and chosen[0] is chosen[3] is chosen[4]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False)
    def in_graph(first, second):
        rows = tokenizer(first, second, max_length=9)
        return tokenizer.tokenize(first), tokenizer.tokenize_with_offsets(first), rows

    for batch in batches:
        first = tf.constant(batch, tf.string)
        second = tf.reverse(first, [0])
        ids, pieces, rows = in_graph(first, second)
        assert tokenizer.tokenize(first).to_list() == ids.to_list()
        for received, expected in zip(tokenizer.tokenize_with_offsets(first), pieces):
            assert received.to_list() == expected.to_list()
        for name, value in tokenizer(first, second, max_length=9).items():
            assert value.numpy().tolist() == rows[name].numpy().tolist()


def test_copies_after_a_call():
    """The traced functions are not copied or stored."""
    tokenizer = BertTokenizer(vocabulary_of("copies"))
    expected = tokenizer(["a é"])["token_ids"].numpy().tolist()
    serialized = keras.saving.serialize_keras_object(tokenizer)
    again = keras.saving.deserialize_keras_object(serialized)
    for copied in (again, pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert copied(["a é"])["token_ids"].numpy().tolist() == expected


def test_errors_of_rows():
    """They read as those of eager operations, without the names of a graph's nodes."""
    tokenizer = BertTokenizer(vocabulary_of("errors"))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"^The segment that .* most 4 tokens"):
        tokenizer(["a", "a b c d e"], ["b", "b"], max_length=7, truncation="only_second")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"^Every text must be .*row\(s\) \[1\]"
    ):
        tokenizer(["a", b"\xff"], ["a", "b"])
