"""What the tokenizer offers around the ids."""

import copy
import dataclasses
import json
import pickle
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertTextClassifier
from bert_tf.errors import ConfigError, DataError, UserError
from bert_tf.text import BertTokenizer, SubwordTokenizer, load_tokenizer
from bert_tf.text.wordpiece import WordPiece
from tests.serving.operations import operations
from tests.text.subwords import bpe_definition

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = SPECIAL + [
    "hello",
    "world",
    "##s",
    "e",
    "a",
    "b",
    "c",
    "d",
    "[",
    "]",
    "mask",
    "中",
    "文",
    "ip",
    "##hone",
    ".",
    "#NUM#",
    "3",
]


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(VOCABULARY)


@pytest.fixture(scope="module")
def whole():
    return BertTokenizer(VOCABULARY, split_special_tokens=False)


def spell(tokenizer, ids):
    return [tokenizer.vocabulary[i] for i in np.asarray(ids)]


def test_single_texts_are_padded_to_the_longest(tokenizer):
    outputs = tokenizer(["Hello worlds", "é"])
    np.testing.assert_array_equal(outputs["token_ids"], [[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])
    np.testing.assert_array_equal(outputs["segment_ids"], np.zeros([2, 5]))
    np.testing.assert_array_equal(outputs["padding_mask"], [[True] * 5, [True] * 3 + [False] * 2])
    assert [outputs[k].dtype for k in ("token_ids", "segment_ids", "padding_mask")] == [
        tf.int32,
        tf.int32,
        tf.bool,
    ]


def test_one_string_has_no_batch(tokenizer):
    outputs = tokenizer("hello", "a b", padding=8)
    assert spell(tokenizer, outputs["token_ids"]) == [
        "[CLS]",
        "hello",
        "[SEP]",
        "a",
        "b",
        "[SEP]",
        "[PAD]",
        "[PAD]",
    ]
    np.testing.assert_array_equal(outputs["segment_ids"], [0, 0, 0, 1, 1, 1, 0, 0])


def test_paddings(tokenizer):
    texts = ["a b c", "a"]
    assert tokenizer(texts)["token_ids"].shape == (2, 5)
    for multiple in (4, np.int64(4)):
        assert tokenizer(texts, padding=multiple)["token_ids"].shape == (2, 8)
    assert tokenizer(texts, padding="max_length", max_length=6)["token_ids"].shape == (2, 6)
    assert tokenizer([])["token_ids"].shape[0] == 0
    rows = tokenizer(texts, ["b", "c d"], ragged=True)
    assert rows["token_ids"].to_list() == [[2, 9, 10, 11, 3, 10, 3], [2, 9, 3, 11, 12, 3]]
    assert rows["segment_ids"].to_list() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]]


def original_truncation(first, second, budget):
    """google-research/bert: the longer segment loses its last token, the second on a tie."""
    first, second = list(first), list(second)
    while len(first) + len(second) > budget:
        (first if len(first) > len(second) else second).pop()
    return first, second


def test_truncation_is_the_originals(tokenizer):
    lengths = [(a, b) for a in range(9) for b in range(9)]
    texts, pairs = ["a " * a for a, _ in lengths], ["b " * b for _, b in lengths]
    for max_length in range(3, 14):
        rows = tokenizer(texts, pairs, max_length=max_length, ragged=True)["token_ids"].to_list()
        for (a, b), row in zip(lengths, rows):
            first, second = original_truncation([9] * a, [10] * b, max_length - 3)
            assert row == [2, *first, 3, *second, 3]


def test_truncation_as_in_hugging_face(tokenizer):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    ids = {piece: index for index, piece in enumerate(VOCABULARY)}
    theirs = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    theirs.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    lengths = [(a, b) for a in range(9) for b in range(9)]
    texts, pairs = ["a " * a for a, _ in lengths], ["b " * b for _, b in lengths]
    for max_length in range(3, 14):
        form = {"max_length": max_length, "truncation": "longest_first_huggingface"}
        theirs.enable_truncation(max_length, strategy="longest_first")
        expected = [row.ids for row in theirs.encode_batch([*zip(texts, pairs)])]
        assert tokenizer(texts, pairs, **form, ragged=True)["token_ids"].to_list() == expected


def test_truncation_of_one_segment(tokenizer):
    row = tokenizer("a a a a", "b b", max_length=7, truncation="only_first", ragged=True)
    assert spell(tokenizer, row["token_ids"]) == ["[CLS]", "a", "a", "[SEP]", "b", "b", "[SEP]"]
    row = tokenizer("a a", "b b b", max_length=7, truncation="only_second", ragged=True)
    assert spell(tokenizer, row["token_ids"]) == ["[CLS]", "a", "a", "[SEP]", "b", "b", "[SEP]"]
    message = r"^The segment that .*does not truncate .*row\(s\) \[1\] with lengths \[5\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tokenizer(["a", "a a a a a"], ["b", "b"], max_length=7, truncation="only_second")


def test_arguments_are_checked(tokenizer):
    for arguments in (
        {"padding": "long"},
        {"padding": 0},
        {"padding": True},
        {"padding": None},
        {"padding": 2.5},
        {"padding": "max_length"},
        {"truncation": "none"},
        {"max_length": 1},
    ):
        with pytest.raises(ConfigError, match="Received"):
            tokenizer(["a"], **arguments)
    with pytest.raises(ConfigError, match="at least 3"):
        tokenizer(["a"], ["b"], max_length=2)
    with pytest.raises(ConfigError, match="dtype='int32'"):
        tokenizer([1])
    with pytest.raises(ConfigError, match="shape"):
        tokenizer([["a"]])
    with pytest.raises(ConfigError, match="must have the shape"):
        tokenizer(["a"], ["b", "c"])
    with pytest.raises(ConfigError, match="strict"):
        BertTokenizer(VOCABULARY, errors="ignore")


def test_pieces_of_any_shape(tokenizer):
    assert tokenizer.pieces(["Hello worlds", ""]).to_list() == [[b"hello", b"world", b"##s"], []]
    assert tokenizer.pieces([["a", "b c"]]).to_list() == [[[b"a"], [b"b", b"c"]]]
    words = tf.ragged.constant([["worlds", "a"], ["b"]])
    assert tokenizer.tokenize(words).to_list() == [[[6, 7], [9]], [[10]]]
    assert tokenizer.tokenize("worlds").numpy().tolist() == [6, 7]
    subwords = SubwordTokenizer(bpe_definition([("w", "o")]))
    for one in (tokenizer, subwords):  # some readers of data make int32 row splits
        for texts in (words, tf.expand_dims(words, 0)):
            narrow = texts.with_row_splits_dtype(tf.int32)
            assert one.tokenize(narrow).to_list() == one.tokenize(texts).to_list()
            assert one.pieces(narrow).to_list() == one.pieces(texts).to_list()


def test_strings_of_unknown_rank_are_refused(tokenizer):
    spec = tf.TensorSpec(None, tf.string)
    for method in (tokenizer, tokenizer.tokenize, tokenizer.pieces):
        with pytest.raises(ConfigError, match=r"`texts` must be .*Received: texts.shape=<unknown>"):
            tf.function(method, autograph=False).get_concrete_function(spec)


def test_detokenize(tokenizer):
    outputs = tokenizer(["Hello worlds", "a [MASK]"])
    texts = tokenizer.detokenize(outputs["token_ids"]).numpy().tolist()
    assert texts == [b"hello worlds", b"a [ mask ]"]
    assert tokenizer.detokenize([2, 9, 3], skip_special_tokens=False) == b"[CLS] a [SEP]"


WITH_SPECIAL = ["a [MASK]b[SEP]", "[mask]", "", "é[MASK]"]


def test_detokenize_as_hugging_face_does(tokenizer, whole):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    ids = {piece: index for index, piece in enumerate(VOCABULARY)}
    theirs = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    theirs.add_special_tokens([piece for piece in VOCABULARY if piece.startswith("[")])
    theirs.decoder = tokenizers.decoders.WordPiece(cleanup=False)
    rows = [[2, 5, 4, 6, 1, 7, 3, 0], [4, 1], []]
    for skip, option in ((True, "all"), (False, False)):
        expected = [theirs.decode(row, skip_special_tokens=skip) for row in rows]
        received = tokenizer.detokenize(tf.ragged.constant(rows, tf.int32), option)
        assert [text.decode() for text in received.numpy()] == expected
    subwords = SubwordTokenizer(bpe_definition([("w", "o")]))
    assert subwords.detokenize([[0, 3, 4, 5 + ord("a"), 2]], "all").numpy()[0] == b"a"
    with pytest.raises(ConfigError, match="must be True, False or 'all'"):
        tokenizer.detokenize([[5]], "none")


def test_special_tokens_in_the_text_are_split(tokenizer):
    assert tokenizer.pieces(WITH_SPECIAL).to_list()[0][1:4] == [b"[", b"mask", b"]"]


def test_special_tokens_in_the_text_are_kept_whole(whole):
    assert whole.pieces(WITH_SPECIAL).to_list() == [
        [b"a", b"[MASK]", b"b", b"[SEP]"],
        [b"[", b"mask", b"]"],
        [],
        [b"e", b"[MASK]"],
    ]


def test_special_tokens_after_a_nul(whole):
    assert whole.pieces(["a\0 [MASK] b"]).to_list() == [[b"a", b"[MASK]", b"b"]]


def test_where_special_tokens_in_the_text_are(whole):
    pieces = whole.tokenize_with_offsets(WITH_SPECIAL)
    assert pieces.char_starts.to_list() == [[0, 2, 8, 9], [0, 1, 5], [], [0, 1]]
    assert pieces.byte_ends.to_list() == [[1, 8, 9, 14], [1, 5, 6], [], [2, 8]]


def test_numbers_become_one_token():
    tokenizer = BertTokenizer(VOCABULARY, number_token="#NUM#")
    text = ["中12.5文 3 a3 #NUM#"]
    assert tokenizer.pieces(text).to_list() == [
        ["中".encode(), b"#NUM#", "文".encode(), b"#NUM#", b"[UNK]", b"#NUM#"]
    ]
    pieces = tokenizer.tokenize_with_offsets(text)
    assert pieces.char_starts.to_list() == [[0, 1, 5, 7, 9, 12]]
    assert pieces.char_ends.to_list() == [[1, 5, 6, 8, 11, 17]]
    with pytest.raises(DataError, match="number_token"):
        BertTokenizer(SPECIAL, number_token="#NUM#")


@pytest.mark.parametrize(
    "text, spans",
    [
        ("1,234.5", [(0, 7)]),
        ("1,234,567 12,34", [(0, 9), (10, 12), (13, 15)]),  # a group of two digits ends a number
        ("1,2345", [(0, 1), (2, 6)]),
        ("中２００文", [(1, 4)]),
        ("１，２３４．５％", [(0, 7)]),
        ("3rd 22ND 4thing", [(0, 3), (4, 8)]),
        ("12% 12.", [(0, 2), (4, 6)]),
        ("a3 3a v1.5", [(9, 10)]),  # "1" is a part of the word "v1"
    ],
)
def test_what_is_a_number(text, spans):
    tokenizer = BertTokenizer(VOCABULARY, number_token="#NUM#")
    found = tokenizer.tokenize_with_offsets([text])
    ids, starts, ends = (
        part.to_list()[0] for part in (found.ids, found.char_starts, found.char_ends)
    )
    number = tokenizer.token_to_id("#NUM#")
    assert [span for token, *span in zip(ids, starts, ends) if token == number] == [
        [*span] for span in spans
    ]


def test_in_tf_data_and_tf_function(tokenizer):
    # A new tokenizer: the first use is inside a graph.
    fresh = BertTokenizer(VOCABULARY)
    batches = tf.data.Dataset.from_tensor_slices(["hello", "é a"]).batch(2).map(fresh)
    np.testing.assert_array_equal(next(iter(batches))["token_ids"], [[2, 5, 3, 0], [2, 8, 9, 3]])
    np.testing.assert_array_equal(fresh(["a"])["token_ids"], [[2, 9, 3]])
    np.testing.assert_array_equal(tf.function(fresh)(tf.constant(["a"]))["token_ids"], [[2, 9, 3]])


def test_under_a_distribution_strategy(tokenizer):
    strategy = (
        tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        if len(tf.config.list_logical_devices("CPU")) > 1
        else tf.distribute.MirroredStrategy(["CPU:0"])
    )
    result = strategy.run(tf.function(lambda: tokenizer(tf.constant(["é"]))["token_ids"]))
    np.testing.assert_array_equal(strategy.experimental_local_results(result)[0], [[2, 8, 3]])


def test_saved_model_gives_the_same_ids(tokenizer, tmp_path):
    class Server(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, texts):
            return tokenizer(texts)

    tf.saved_model.save(Server(), str(tmp_path))
    # TensorFlow and tensorflow-text have all its operations, and none of them is Python's.
    found = operations(tmp_path)
    assert not [name for name in found if name.startswith("BertTf>") or "PyFunc" in name]
    outputs = tf.saved_model.load(str(tmp_path)).serve(tf.constant(["Hello worlds", "é 中"]))
    np.testing.assert_array_equal(outputs["token_ids"], [[2, 5, 6, 7, 3], [2, 8, 16, 3, 0]])


def test_serialisation(tokenizer):
    made = BertTokenizer(
        VOCABULARY,
        lowercase=False,
        strip_accents=True,
        split_special_tokens=False,
        split_on_cjk=False,
        max_input_chars_per_word=20,
        max_length=np.int32(9),
        number_token="#NUM#",
        errors="replace",
    )
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(made))
    for copied in (again, pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert copied.get_config() == made.get_config()
    assert made.get_config()["vocabulary"] == VOCABULARY


def test_directories(tokenizer, tmp_path, minilm):
    made = BertTokenizer(
        VOCABULARY, lowercase=False, max_length=np.int64(77), number_token="#NUM#", errors="replace"
    )
    made.save_pretrained(tmp_path)
    assert BertTokenizer.from_pretrained(tmp_path).get_config() == made.get_config()
    assert BertTokenizer.from_pretrained(tmp_path, lowercase=True).lowercase
    real = BertTokenizer.from_pretrained(minilm)
    assert (real.vocab_size, real.lowercase, real.mask_token_id) == (30522, True, 103)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(DataError, match="vocab.txt"):
        BertTokenizer.from_pretrained(tmp_path)
    with pytest.raises(DataError, match="every special token.*'\\[SEP\\]' \\(sep_token\\)"):
        BertTokenizer(["[UNK]", "[PAD]", "[CLS]", "[MASK]"])
    with pytest.raises(DataError, match="every special token.*None \\(sep_token\\)"):
        BertTokenizer(VOCABULARY, sep_token=None)


def test_malformed_text():
    strict, lenient = BertTokenizer(VOCABULARY), BertTokenizer(VOCABULARY, errors="replace")
    texts = [b"a", b"a\xff", "\ufffd".encode(), b"\xed\xa0\x80b", b"\xe4\xb8"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row\(s\)\] \[1 3 4\]"):
        strict.tokenize(texts)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row\(s\)\] \[1 3 4\]"):
        strict.tokenize_with_offsets(texts)
    assert lenient.tokenize(texts).to_list() == [[9], [9], [], [10], []]
    assert lenient.tokenize_with_offsets(texts).byte_starts.to_list() == [[0], [0], [], [3], []]


def test_malformed_is_what_python_refuses():
    """Characters at the edges of what is valid, and parts of characters."""
    hexadecimal = """7f 80 c080 c1bf c280 dfbf e08080 e09fbf e0a080 ed9fbf eda080 edbfbf ee8080
        efbfbe efbfbf f0808080 f08fbfbf f0908080 f48fbfbf f4908080 f5808080 ff c2 e0a0 f09080 c241
        """
    texts = [bytes.fromhex(text) for text in hexadecimal.split()]
    malformed = [
        row for row, text in enumerate(texts) if "\ufffd" in text.decode("utf-8", "replace")
    ]
    assert 0 < len(malformed) < len(texts)
    rows = " ".join(map(str, malformed))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"row\(s\)\] \[{rows}\]"):
        BertTokenizer(VOCABULARY).tokenize(texts)


@pytest.mark.parametrize(
    "unit", ["a", "é", "\u0301", "\u302e", "Σ", "각", " ", ".", "é ", "\x0b", "中", "[MASK]"]
)
def test_time_is_linear(whole, unit):
    """Ten times the text takes far less than a hundred times the time."""
    whole.tokenize(["é a"])

    def seconds(size):
        text = tf.constant([unit * (size // len(unit.encode()))])
        start = time.perf_counter()
        whole.tokenize(text)
        return time.perf_counter() - start

    small = min(seconds(100_000) for _ in range(3))
    assert seconds(1_000_000) < 40 * small + 0.5


def test_a_cased_vocabulary_and_lowered_text(tmp_path, caplog):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Paris", "paris"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    with pytest.raises(ConfigError, match="`lowercase` must be given for a vocabulary with"):
        BertTokenizer.from_pretrained(tmp_path)
    assert not BertTokenizer.from_pretrained(tmp_path, lowercase=False).lowercase
    assert not caplog.text
    assert BertTokenizer.from_pretrained(tmp_path, lowercase=True).lowercase
    assert "does not fit the vocabulary" in caplog.text
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert BertTokenizer.from_pretrained(tmp_path).lowercase  # the files say so
    other = tmp_path / "other.txt"
    other.write_text("\n".join(words[:-1]))
    tokenizer = BertTokenizer.from_pretrained(tmp_path, vocabulary=other)
    assert tokenizer.vocab_size == 6 and tokenizer.lowercase


def test_two_separators_as_in_mpnet(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    words = ["the", "film", "##s", "is", "good"]
    vocabulary = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *words]
    ids = {piece: index for index, piece in enumerate(vocabulary)}
    theirs = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = ("</s>", 2), ("<s>", 0)
    theirs.post_processor = tokenizers.processors.RobertaProcessing(*ends, add_prefix_space=False)
    theirs.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    named = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    config = {**named, "unk_token": "[UNK]", "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))

    tokenizer = load_tokenizer(tmp_path)
    texts, pairs = ["The films", "good"], ["Is good?", "the"]
    expected = [theirs.encode(*pair) for pair in zip(texts, pairs)]
    tokenizer.save_pretrained(tmp_path / "saved")
    again = BertTokenizer.from_config(tokenizer.get_config())
    for one in (tokenizer, load_tokenizer(tmp_path / "saved"), again):
        received = one(texts, pairs, ragged=True)
        assert received["token_ids"].to_list() == [row.ids for row in expected]
        assert received["segment_ids"].to_list() == [row.type_ids for row in expected]
    saved = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "MPNetTokenizer"
    with pytest.raises(ConfigError, match="`separators` must be 1 or 2"):
        BertTokenizer(vocabulary, **named, separators=3)


@pytest.mark.parametrize("kind", ["WordPiece", "BPE"])
def test_a_tokenizer_file_of_another_tokenizer_is_not_left(kind, tokenizer, tmp_path):
    def write(*pieces):
        model = {"type": kind, "vocab": {piece: index for index, piece in enumerate(pieces)}}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))

    write(*SPECIAL, "other")
    config = BertConfig(vocab_size=len(VOCABULARY), hidden_size=32, num_attention_heads=4)
    backbone = BertBackbone(dataclasses.replace(config, num_hidden_layers=1))
    model = BertTextClassifier(backbone, num_classes=2, tokenizer=tokenizer)
    for saved in (tokenizer, model):
        with pytest.raises(UserError, match="must not hold the tokenizer.json of another tok"):
            saved.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    if kind == "WordPiece":
        write(*VOCABULARY)
        model.save_pretrained(tmp_path)
        assert load_tokenizer(tmp_path).get_config() == tokenizer.get_config()


@pytest.mark.parametrize("kind", ["added_tokens.json", "both", "tokenizer.json"])
def test_added_tokens_are_read(kind, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    added = {"[PAD]": 0, "[E1]": len(VOCABULARY)}
    if kind == "added_tokens.json":
        (tmp_path / kind).write_text(json.dumps(added))
    else:
        content = {
            "model": {"vocab": {piece: index for index, piece in enumerate(VOCABULARY)}},
            "added_tokens": [{"content": token, "id": index} for token, index in added.items()],
        }
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    if kind == "tokenizer.json":
        (tmp_path / "vocab.txt").unlink()
    loaded = load_tokenizer(tmp_path)
    assert loaded.vocabulary == [*VOCABULARY, "[E1]"]
    assert [token["content"] for token in loaded.added_tokens] == ["[E1]"]
    assert loaded.pieces(["a[e1]"]).to_list() == [[b"a", b"[E1]"]]
    whole = BertTokenizer.from_pretrained(tmp_path, vocabulary=[*VOCABULARY, "[E1]"])
    assert whole.vocab_size == len(VOCABULARY) + 1


def test_a_query_of_several_documents_is_tokenized_once(minilm, monkeypatch, eagerly):
    tokenizer = BertTokenizer.from_pretrained(minilm)
    queries, documents = ["a long query"] * 3, ["one", "two", "one"]
    expected = [tokenizer(*pair)["token_ids"].numpy().tolist() for pair in zip(queries, documents)]
    tokenized, pieces = [], WordPiece._ascii_pieces

    def recorded(self, texts):
        tokenized.extend(texts.numpy().tolist())
        return pieces(self, texts)

    with monkeypatch.context() as patched:
        patched.setattr(WordPiece, "_ascii_pieces", recorded)
        fresh = BertTokenizer(tokenizer.vocabulary, max_input_chars_per_word=99)
        rows = fresh(queries, documents, ragged=True)["token_ids"].to_list()
    assert rows == expected
    assert sorted(tokenized) == [b"a long query", b"one", b"two"]
    in_graph = tf.function(lambda *pair: tokenizer(*pair, ragged=True)["token_ids"])
    assert in_graph(tf.constant(queries), tf.constant(documents)).to_list() == expected
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row\(s\) \[2 3\]"):
        tokenizer([b"a", b"a", b"\xff", b"\xff"], ["b"] * 4)
