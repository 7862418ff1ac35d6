"""`encode`, compared with Hugging Face's `tokenizers`, whose results transformers passes on."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig
from bert_tf.errors import ConfigError
from bert_tf.text import BertTokenizer, SubwordTokenizer, encode
from bert_tf.text.unicode_tables import unicode_data
from tests.text import fuzz, test_families
from tests.text.subwords import bpe_definition, gemma_definition, hugging_face, unigram_definition
from tests.text.test_tokenizer_files import PIECES as WORD_PIECES
from tests.text.test_tokenizer_files import wordpiece_definition

pytestmark = pytest.mark.usefixtures("eagerly")

INSERTED = ["<mask>", " <mask> ", "[E]", "[MASK]", "hello", "a" * 5, "aab!a", "'s", "  ", "\n"]
WORDS = [["hello", "a-b", "", " x"], ["é"], [], ["a" * 9, "中文", "<mask>", "[E]", "?!"]]
ONLY_SECOND = {"truncation": "only_second"}
OF_CHARACTERS = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello")]


def wordpiece():
    tokens = [{"id": WORD_PIECES.index("[E]"), "content": "[E]", "special": True}]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    definition = wordpiece_definition(added_tokens=[{**flags, **token} for token in tokens])
    options = {"max_input_chars_per_word": 100, "character_rules": "huggingface"}
    tokenizer = BertTokenizer(WORD_PIECES, additional_special_tokens=["[E]"], **options)
    return definition, tokenizer


def subwords(definition):
    return definition, SubwordTokenizer(definition)


FAMILIES = {
    "wordpiece": wordpiece,
    "byte_pairs": lambda: subwords(bpe_definition(test_families.MERGES)),
    "prefix_space": lambda: subwords(bpe_definition(test_families.MERGES, True)),
    "modernbert": lambda: subwords(test_families.modernbert()),
    "eurobert": lambda: subwords(test_families.eurobert()),
    "deberta_v2": lambda: subwords(test_families.deberta_v2()),
    "unigram": lambda: subwords(unigram_definition(test_families.PIECES, True)),
    "gemma": lambda: subwords(gemma_definition(OF_CHARACTERS, "helo", ["\n"])),
}


@pytest.fixture(scope="module", params=FAMILIES)
def both(request):
    pytest.importorskip("tokenizers", reason="needs tokenizers")
    definition, tokenizer = FAMILIES[request.param]()
    return hugging_face(definition), tokenizer


@pytest.fixture
def texts(both, request):
    (found,) = fuzz.batches(25, INSERTED)
    found = [text[:60] for text in found]
    if isinstance(both[1], BertTokenizer):  # whose spans have the marks after their last letter
        marks = unicode_data().properties["mark"]
        found = ["".join(char for char in text if not marks[ord(char)]) for text in found]
    if "prefix_space" in request.node.callspec.id:  # the spaces before which are one further there
        found = [text.replace("<mask>", "") for text in found]
    return ["", "a", *found]


def rows_of(encoding):
    """The rows in the form of `described`."""
    dense = {name: values.tolist() for name, values in encoding.numpy().items()}
    spans = [[*zip(*row)] for row in zip(dense["char_starts"], dense["char_ends"])]

    def with_none(name):
        return [[None if value < 0 else value for value in row] for row in dense[name]]

    mask = [[*map(int, row)] for row in dense["padding_mask"]]
    special = [[*map(int, row)] for row in dense["special_tokens_mask"]]
    ids = dense["token_ids"], dense["segment_ids"], mask, special
    return [*zip(*ids, spans, with_none("word_ids"), with_none("text_ids"), encoding.examples)]


def described(encodings):
    """What `tokenizers` returns, row by row, also of windows."""
    return [
        (
            row.ids,
            row.type_ids,
            row.attention_mask,
            row.special_tokens_mask,
            row.offsets,
            row.word_ids,
            row.sequence_ids,
            example,
        )
        for example, encoding in enumerate(encodings)
        for row in (encoding, *encoding.overflowing)
    ]


def assert_rows(received, expected):
    assert len(received) == len(expected)
    for mine, theirs in zip(received, expected):
        assert mine == theirs


def padded(theirs, tokenizer, side="right", multiple=None):
    padding = {"pad_id": tokenizer.pad_token_id, "pad_token": tokenizer.pad_token}
    theirs.enable_padding(direction=side, pad_to_multiple_of=multiple, **padding)


def truncated(theirs, length, overlap, strategy, side):
    theirs.enable_truncation(length, stride=overlap, strategy=strategy, direction=side)


def test_texts_and_pairs(both, texts):
    theirs, tokenizer = both
    theirs.no_truncation()
    padded(theirs, tokenizer)
    assert_rows(rows_of(tokenizer.encode(texts)), described(theirs.encode_batch(texts)))
    pairs = texts[::-1]
    expected = described(theirs.encode_batch([*zip(texts, pairs)]))
    assert_rows(rows_of(tokenizer.encode(texts, pairs)), expected)


def test_words(both):
    theirs, tokenizer = both
    theirs.no_truncation()
    padded(theirs, tokenizer, "left", 8)
    options = {"is_split_into_words": True, "padding_side": "left", "padding": 8}
    expected = described(theirs.encode_batch(WORDS, is_pretokenized=True))
    assert_rows(rows_of(tokenizer.encode(WORDS, **options)), expected)
    pairs = [*zip(WORDS, WORDS[::-1])]
    expected = described(theirs.encode_batch(pairs, is_pretokenized=True))
    assert_rows(rows_of(tokenizer.encode(WORDS, WORDS[::-1], **options)), expected)
    assert len(tokenizer.encode(["hello", "you"], is_split_into_words=True)) == 1


@pytest.mark.parametrize("both", ["wordpiece", "eurobert"], indirect=True)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("overlap", [0, 4])
def test_windows(both, texts, side, overlap, monkeypatch):
    theirs, tokenizer = both
    padded(theirs, tokenizer, side)
    truncated(theirs, 12, overlap, "longest_first", side)
    monkeypatch.setattr(tokenizer, "truncation_side", side)
    options = {"max_length": 12, "window_overlap": overlap, "padding_side": side}
    expected = described(theirs.encode_batch(texts))
    assert_rows(rows_of(tokenizer.encode(texts, **options)), expected)
    assert len(expected) > len(texts)
    pairs = [*zip(["a"] * len(texts), texts)]
    truncated(theirs, 14, overlap, "only_second", side)
    expected = described(theirs.encode_batch(pairs))
    options |= {"max_length": 14, "truncation": "only_second"}
    received = rows_of(tokenizer.encode(*map(list, zip(*pairs)), **options))
    assert_rows(received, expected)
    truncated(theirs, 14, overlap, "only_first", side)
    expected = described(theirs.encode_batch([pair[::-1] for pair in pairs]))
    options |= {"truncation": "only_first"}
    received = rows_of(tokenizer.encode(texts, ["a"] * len(texts), **options))
    assert_rows(received, expected)


@pytest.mark.parametrize("both", ["wordpiece", "eurobert"], indirect=True)
def test_truncation(both, texts):
    theirs, tokenizer = both
    padded(theirs, tokenizer)
    theirs.enable_truncation(11)
    pairs = texts[::-1]
    encodings = theirs.encode_batch([*zip(texts, pairs)])
    options = {"max_length": 11, "truncation": "longest_first_huggingface"}
    received = rows_of(tokenizer.encode(texts, pairs, **options))
    expected = described(encodings)
    numbers = [row[-1] for row in expected]
    first = [numbers.index(number) for number in range(len(texts))]  # without other windows
    assert_rows(received, [expected[place] for place in first])


@pytest.mark.parametrize("both", ["wordpiece", "eurobert"], indirect=True)
@pytest.mark.parametrize("side", ["right", "left"])
def test_questions_about_places(both, texts, side):
    theirs, tokenizer = both
    theirs.no_truncation()
    padded(theirs, tokenizer, side)
    pairs = texts[::-1]
    encoding = tokenizer.encode(texts, pairs, padding_side=side)
    for row, expected in enumerate(theirs.encode_batch([*zip(texts, pairs)])):
        for text, string in enumerate((texts[row], pairs[row])):
            for char in range(len(string) + 1):
                place = row, char, text
                assert encoding.char_to_token(*place) == expected.char_to_token(char, text)
                assert encoding.char_to_word(*place) == expected.char_to_word(char, text)
                assert encoding.word_to_tokens(*place) == expected.word_to_tokens(char, text)
                assert encoding.word_to_chars(*place) == expected.word_to_chars(char, text)
        for token in range(encoding.width):
            assert encoding.token_to_chars(row, token) == expected.token_to_chars(token)
            assert encoding.token_to_word(row, token) == expected.token_to_word(token)


def test_forms():
    tokenizer = BertTokenizer(WORD_PIECES, max_length=6)
    encoding = tokenizer.encode(["a aa b a b a", "b"])
    assert encoding.lengths.tolist() == [6, 3] and len(encoding) == 2
    ragged, dense, tensors = encoding.ragged(), encoding.numpy(), encoding.tensors()
    assert ragged["token_ids"].to_list()[1] == [2, 7, 3]
    assert {*ragged} == {*dense} - {"padding_mask"} and {*tensors} == {*dense}
    for name, values in dense.items():
        assert values.shape == (2, 6)
        np.testing.assert_array_equal(values, tensors[name])
        if name in ragged:
            np.testing.assert_array_equal(values[0], ragged[name][0])
    expected = tokenizer(["a aa b a b a", "b"])
    inputs = encoding.inputs()
    assert {*inputs} == {*expected}
    for name in expected:
        assert inputs[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(inputs[name], expected[name])
    config = BertConfig(len(WORD_PIECES), 32, 1, 4, 64)
    right, left = (tokenizer.encode(["b"], padding=8, padding_side=s) for s in ("right", "left"))
    backbone = BertBackbone(config)
    shape = backbone(left.inputs())["sequence_output"].shape
    assert shape == backbone(right.inputs())["sequence_output"].shape == (1, 8, 32)


@pytest.mark.parametrize("both", ["wordpiece"], indirect=True)
def test_nothing(both):
    _, tokenizer = both
    for options in ({}, {"is_split_into_words": True}, {"window_overlap": 1, "max_length": 9}):
        encoding = tokenizer.encode([], **options)
        assert len(encoding) == 0 and encoding.numpy()["token_ids"].shape == (0, 0)
    tokens = tokenizer.encode("hello").numpy()["token_ids"]
    np.testing.assert_array_equal(tokens[0], tokenizer("hello")["token_ids"])
    words = tf.ragged.constant([["hello", "a"], ["b"]])
    options = {"is_split_into_words": True}
    expected = tokenizer.encode([["hello", "a"], ["b"]], **options).numpy()
    np.testing.assert_array_equal(
        tokenizer.encode(words, **options).numpy()["word_ids"][0], expected["word_ids"][0]
    )


@pytest.mark.parametrize(
    "texts, options, message",
    [
        (["a"], {"padding_side": "up"}, r"`padding_side` must be one of"),
        (["a"], {"padding": "max_length"}, r"`padding` must be 'longest'"),
        (["a"], {"truncation": "x"}, r"`truncation` must be one of"),
        ([1, 2], {}, r"`texts` must be strings"),
        (["a"], {"pairs": ["a", "b"]}, r"`pairs` must have as many rows as `texts`"),
        (["a", ["b"]], {"is_split_into_words": True}, r"be lists of words.*at row 0"),
        ([["b"], [1]], {"is_split_into_words": True}, r"be lists of words.*\[1\] at row 1"),
        (["a"], {"window_overlap": 1}, r"`max_length` must be given with `window_overlap`"),
        (["a"], {"window_overlap": -1, "max_length": 9}, r"`window_overlap` must be an integer of"),
        (["a"], {"window_overlap": 1.5, "max_length": 9}, r"`window_overlap` must be an integer"),
        (["a b a"], {"window_overlap": 2, "max_length": 4}, r"leave more room.*2 tokens in row 0"),
        (
            ["a"],
            {"pairs": ["a"], "window_overlap": 1, "max_length": 9},
            r"`truncation` must be 'only_first' or 'only_second' with",
        ),
        (
            ["a", "a a a"],
            {
                "pairs": ["a", "b b"],
                "window_overlap": 1,
                "max_length": 6,
                "truncation": "only_second",
            },
            r"room for 0 tokens in row 1",
        ),
    ],
)
def test_arguments(texts, options, message):
    with pytest.raises(ConfigError, match=message):
        encode(BertTokenizer(WORD_PIECES), texts, **options)


def test_middle_and_places_that_do_not_exist():
    tokenizer = BertTokenizer(WORD_PIECES, truncation_side="middle", max_length=6)
    with pytest.raises(ConfigError, match="must be 'right' or 'left' with `window_overlap`"):
        tokenizer.encode(["a"], window_overlap=1)
    encoding = tokenizer.encode(["a b a b a b a b"])
    assert encoding.numpy()["char_starts"].tolist() == [[0, 0, 10, 12, 14, 0]]
    for row, token in ((1, 0), (-1, 0), (0, 6), (0, -1)):
        with pytest.raises(ConfigError, match=r"must be in \[0, "):
            encoding.token_to_chars(row, token)
    words = tokenizer.encode([["a"]], is_split_into_words=True)
    with pytest.raises(ConfigError, match="`word_to_tokens`"):
        words.char_to_token(0, 0)
