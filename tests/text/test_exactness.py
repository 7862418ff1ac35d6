"""The ids of google-research/bert, id for id, against the oracle; those of `tokenizers`, too."""

import bz2
import functools
import random
import re

import pytest
import tensorflow as tf

from bert_tf.text import BertTokenizer, load_tokenizer
from bert_tf.text.unicode_tables import HUGGING_FACE
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import ASCII, fast_characters
from tests.text import fuzz, oracle

FEW, MANY = 1_000, 200_000  # strings
STRINGS_AT_A_TIME = 5_000
RANGE = re.compile(r"\\x\{(\w+)\}-\\x\{(\w+)\}")

# lowercase, strip_accents, split_on_cjk
MODES = [(True, None, True), (False, None, True), (True, False, True), (False, True, False)]


def fuzzed_batches(number, seed=0):
    """Strings in batches; the code points that this Python's Unicode knows otherwise left out."""
    changed = oracle.changed_code_points()
    if changed:
        print("left out:", " ".join(f"U+{ord(char):04X}" for char in sorted(changed)))
    generator = random.Random(seed)
    for start in range(0, number, STRINGS_AT_A_TIME):
        batch = []
        for index in range(min(STRINGS_AT_A_TIME, number - start)):
            make = fuzz.random_ascii if index % 4 == 0 else fuzz.random_string
            batch.append("".join(char for char in make(generator) if char not in changed))
        yield batch


def expected_words(text, *mode):
    """The oracle's words, as this TensorFlow can write them.

    TensorFlow 2.19's tf.strings.unicode_encode writes the 66 noncharacters as U+FFFD. No ids depend
    on it: no vocabulary has either.
    """
    words = oracle.basic_tokens(text, *mode)
    if writes_noncharacters():
        return words
    return ["".join(map(as_written, word)) for word in words]


def as_written(char):
    return "\ufffd" if is_noncharacter(char) else char


@functools.cache
def writes_noncharacters():
    return tf.strings.unicode_encode([0xFFFF], "UTF-8").numpy().decode() == "\uffff"


def is_noncharacter(char):
    return 0xFDD0 <= ord(char) <= 0xFDEF or ord(char) & 0xFFFE == 0xFFFE


def assert_same(texts, received, expected):
    different = [i for i in range(len(texts)) if received[i] != expected[i]]
    assert not different, (
        f"{len(different)} of {len(texts)} differ, first {texts[different[0]]!a}: "
        f"received {received[different[0]]}, expected {expected[different[0]]}"
    )


@pytest.fixture(scope="module", params=["minilm", "chinese_vocab"])
def tokenizer(request, materials):
    return BertTokenizer(materials / request.param / "vocab.txt")


def expected_ids(tokenizer, texts, **options):
    ids = tokenizer._ids

    @functools.cache
    def ids_of(word):
        return [ids[piece] for piece in oracle.word_pieces(word, ids, **options)]

    return [[id for word in oracle.basic_tokens(text) for id in ids_of(word)] for text in texts]


def test_ids_of_fuzzed_strings(tokenizer, is_full):
    for texts in fuzzed_batches(MANY if is_full else FEW):
        expected = expected_ids(tokenizer, texts)
        assert_same(texts, tokenizer.tokenize(texts).to_list(), expected)
        assert_same(texts, tokenizer.tokenize_with_offsets(texts).ids.to_list(), expected)


@pytest.mark.parametrize("lowercase, strip_accents, split_on_cjk", MODES)
def test_words_of_fuzzed_strings(lowercase, strip_accents, split_on_cjk, is_full):
    """Words are compared, not ids, because most odd words are [UNK] in any vocabulary."""
    strip = lowercase if strip_accents is None else strip_accents
    splitter = WordSplitter(lowercase, strip, split_on_cjk)
    for texts in fuzzed_batches(MANY if is_full else FEW, seed=1):
        received = splitter.ragged_words(tf.constant(texts)).to_list()
        received = [[word.decode() for word in row] for row in received]
        expected = [expected_words(text, lowercase, strip_accents, split_on_cjk) for text in texts]
        assert_same(texts, received, expected)


def is_tried(char):
    """Whole planes hold nothing but unassigned or private characters: a sample of those will do."""
    code = ord(char)
    return code < 0x33000 or 0xE0000 <= code < 0xE0200 or code % 997 == 0


@pytest.mark.parametrize(
    "lowercase, strip_accents, split_on_cjk",
    [MODES[0], *(pytest.param(*mode, marks=pytest.mark.full) for mode in MODES[1:])],
)
def test_every_code_point(lowercase, strip_accents, split_on_cjk):
    """Each code point alone between letters, after a capital sigma and before one."""
    splitter = WordSplitter(
        lowercase, lowercase if strip_accents is None else strip_accents, split_on_cjk
    )
    changed = oracle.changed_code_points()
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) not in changed]
    chars = [*filter(is_tried, chars)]
    texts = [
        " ".join(
            f"A{c}B \u0391\u03a3{c} {c}\u03a3 \u0391{c}\u03a3{c}\u0392"
            for c in chars[start : start + 64]
        )
        for start in range(0, len(chars), 64)
    ]
    received = splitter.ragged_words(tf.constant(texts)).to_list()
    received = [[word.decode() for word in row] for row in received]
    expected = [expected_words(text, lowercase, strip_accents, split_on_cjk) for text in texts]
    assert_same(texts, received, expected)


def test_real_texts(tokenizer, materials, is_full):
    english = bz2.open(materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2", "rt")
    chinese = (materials / "chinese_text" / "pos.txt").read_text(encoding="utf-8")
    texts = english.read().split("\n") + chinese.split("\n")
    assert len(texts) > 10_000
    texts = texts if is_full else texts[::8]
    assert_same(texts, tokenizer.tokenize(texts).to_list(), expected_ids(tokenizer, texts))


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_fast_character(lowercase):
    """The fast path and the exact one, with a vocabulary that has a piece for each character."""
    ranges = fast_characters(WordSplitter(lowercase, lowercase)).all.removeprefix(ASCII)
    ranges = [range(int(a, 16), int(b, 16) + 1) for a, b in RANGE.findall(ranges)]
    code_points = [code_point for part in ranges for code_point in part]
    assert len(code_points) > 30_000
    # Of most ideographs a sample will do.
    chars = [chr(c) for c in code_points if not 0x3400 <= c < 0x9F00 or c % 97 == 0]
    assert {*"é’ж"} <= {*chars}
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ABab\u2028", *chars]
    vocabulary += [f"##{char}" for char in vocabulary[5:]]
    tokenizer = BertTokenizer(list(dict.fromkeys(vocabulary)), lowercase=lowercase)
    texts = [f"A{char}B {char}a .{char}. é{char}中" for char in chars]
    expected = tokenizer.tokenize_with_offsets(texts).ids.to_list()
    assert_same(texts, tokenizer.tokenize(texts).to_list(), expected)


@pytest.mark.parametrize("tokenizer", ["minilm"], indirect=True)
@pytest.mark.parametrize("limit", [1, 5, 100])
def test_longest_word(tokenizer, limit):
    shorter = BertTokenizer(tokenizer.vocabulary, max_input_chars_per_word=limit)
    texts = next(fuzzed_batches(200, seed=2)) + ["a" * n for n in (1, 2, 5, 6, 100, 101)]
    expected = expected_ids(tokenizer, texts, max_input_chars_per_word=limit)
    assert_same(texts, shorter.tokenize(texts).to_list(), expected)
    assert_same(texts, shorter.tokenize_with_offsets(texts).ids.to_list(), expected)


def test_ids_of_hugging_face(materials, is_full):
    """A directory with a `tokenizer.json` gives the ids of `tokenizers`."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    expected = tokenizers.Tokenizer.from_file(str(materials / "minilm" / "tokenizer.json"))
    expected.no_truncation()
    expected.no_padding()
    tokenizer = load_tokenizer(materials / "minilm").keeping_special_tokens
    inserted = ["\ue000", "\uf8ff", "\U000f0000", "\U0010fffd", "ΣΑΣ", "\U0002b820", "\U0001fae8"]
    for texts in fuzz.batches(MANY if is_full else FEW, inserted):
        encodings = expected.encode_batch(texts, add_special_tokens=False)
        encodings = [encoding.ids for encoding in encodings]
        assert_same(texts, tokenizer.tokenize(texts).to_list(), encodings)
        assert_same(texts, tokenizer.tokenize_with_offsets(texts).ids.to_list(), encodings)


@pytest.mark.parametrize(
    "lowercase, strip_accents, split_on_cjk",
    [pytest.param(*mode, marks=pytest.mark.full) for mode in MODES],
)
def test_every_code_point_of_hugging_face(lowercase, strip_accents, split_on_cjk):
    """Each code point between letters, next to a sigma, and before marks that NFD reorders."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    strip = lowercase if strip_accents is None else strip_accents
    splitter = WordSplitter(lowercase, strip, split_on_cjk, character_rules=HUGGING_FACE)
    normalizer = tokenizers.normalizers.BertNormalizer(True, split_on_cjk, strip, lowercase)
    split = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    chars = [*filter(is_tried, chars)]
    for start in range(0, len(chars), 2**16):
        texts = [f"A{c}B {c} Α{c}Σ{c} a\u302e\u0301{c}\u0323" for c in chars[start : start + 2**16]]
        received = splitter.ragged_words(tf.constant(texts)).to_list()
        received = [[word.decode() for word in row] for row in received]
        expected = [[word for word, _ in split(normalizer.normalize_str(text))] for text in texts]
        if not writes_noncharacters():
            expected = [["".join(map(as_written, word)) for word in row] for row in expected]
        assert_same(texts, received, expected)


def test_offsets_point_at_the_piece(tokenizer, is_full):
    """What a span cuts out of the text normalises to the piece, [UNK] to its whole word."""
    texts = next(fuzzed_batches(2000 if is_full else 500, seed=3))
    fields = [field.to_list() for field in tokenizer.tokenize_with_offsets(texts)]
    for row, text in enumerate(texts):
        encoded = text.encode()
        spans = [field[row] for field in fields]
        end_before = 0
        in_order = "\u03a3" not in text and not has_expansion_or_reordering(text)
        for token_id, first_byte, last_byte, first, last in zip(*spans):
            assert encoded[first_byte:last_byte].decode() == text[first:last]
            assert first < last
            words = oracle.basic_tokens(text[first:last])
            piece = tokenizer.vocabulary[token_id].removeprefix("##")
            if token_id == tokenizer.unk_token_id:
                assert len(words) == 1
            elif in_order:
                assert words == [piece], (ascii(text), first, last)
                assert first >= end_before
            end_before = last


def has_expansion_or_reordering(text):
    """Where one character becomes parts of two pieces, spans overlap by right."""
    from bert_tf.text import unicode_tables as tables

    table = tables.character_table(True, True, True, True)
    entries = table.entries(tf.constant([ord(char) for char in text], tf.int32)).numpy()
    return any(entry & (tables.EXPANDS | tables.REORDERS) for entry in entries)
