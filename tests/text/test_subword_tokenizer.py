"""What the subword tokenizers offer around the ids, and the files that they read."""

import base64
import copy
import json
import pickle
import random
import struct
import time
import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import ConfigError, DataError, UserError
from bert_tf.text import BertTokenizer, SubwordTokenizer, load_tokenizer
from tests.serving.operations import operations
from tests.text.subwords import (
    SPECIAL,
    added,
    bpe_definition,
    charsmap,
    gemma_definition,
    hugging_face,
    sentencepiece_model,
    unigram_definition,
)

MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "hello"), ("Ã", "©")]
OF_CHARACTERS = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello")]
PIECES = [("▁", -2.0), ("▁hello", -3.0), ("hello", -5.0), ("中", -4.0), ("'", -4.0), ("é", -1.0)]


@pytest.fixture(scope="module")
def byte_pairs():
    return SubwordTokenizer(bpe_definition(MERGES))


@pytest.fixture(scope="module")
def unigram():
    rules = {"\t": " ", "ｈ": "h", "e\u0301": "é", "℃": "°C", "\u200b": "", "é": "é"}
    steps = [
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(rules)).decode()},
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
    ]
    normalizer = {"type": "Sequence", "normalizers": steps}
    return SubwordTokenizer(unigram_definition(PIECES, normalizer=normalizer))


def spell(tokenizer, texts):
    ids = tokenizer.tokenize_with_offsets(texts).ids.to_list()
    return [[tokenizer.vocabulary[token] for token in row] for row in ids]


@pytest.mark.usefixtures("eagerly")
def test_byte_pairs(byte_pairs):
    texts = ["hello hello", " é\n\nhe's", "a  b\n", "", "<mask>  <mask>x</s>", "\0"]
    assert spell(byte_pairs, texts) == [
        ["hello", "Ġhello"],
        ["Ġ", "Ã©", "Ċ", "Ċ", "he", "'", "s"],
        ["a", "Ġ", "Ġ", "b", "Ċ"],
        [],
        ["<mask>", "<mask>", "x", "</s>"],
        ["Ā"],
    ]
    pieces = byte_pairs.tokenize_with_offsets(texts)
    assert pieces.char_starts.to_list()[:2] == [[0, 6], [1, 1, 2, 3, 4, 6, 7]]
    assert pieces.byte_ends.to_list()[:2] == [[5, 11], [1, 3, 4, 5, 7, 8, 9]]
    assert pieces.char_starts.to_list()[4] == [0, 8, 14, 15]  # without the spaces before
    texts = byte_pairs.detokenize(byte_pairs(texts)["token_ids"]).numpy()
    assert [text.decode() for text in texts[:3]] == ["hello hello", " é\n\nhe's", "a  b\n"]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("text", ["s'", "it'", "re'l'"])
def test_an_apostrophe_at_the_end_of_one_text(byte_pairs, text):
    """Its contraction would be the beginning of the same text."""
    assert spell(byte_pairs, [text]) == [list(text)]


@pytest.mark.usefixtures("eagerly")
def test_prefix_space():
    tokenizer = SubwordTokenizer(bpe_definition(MERGES, add_prefix_space=True))
    texts = ["hello", " hello", "", "\nx"]
    assert spell(tokenizer, texts) == [["Ġhello"], ["Ġhello"], [], ["Ġ", "Ċ", "x"]]
    assert tokenizer.tokenize_with_offsets(texts).char_ends.to_list()[:2] == [[5], [6]]


@pytest.mark.usefixtures("eagerly")
def test_unigram(unigram):
    texts = ["hello\u200b  ｈello\t", "中℃é", "e\u0301xy'", "", "  ", "hello<mask>hello", "▁hello"]
    assert spell(unigram, texts) == [
        ["▁hello", "▁hello"],
        ["▁", "中", "<unk>", "é"],
        ["▁", "é", "<unk>", "'"],
        [],
        [],
        ["▁hello", "<mask>", "▁hello"],
        ["▁hello"],
    ]
    pieces = unigram.tokenize_with_offsets(texts)
    assert pieces.char_starts.to_list()[:3] == [[0, 7], [0, 0, 1, 2], [0, 0, 2, 4]]
    assert pieces.char_ends.to_list()[:3] == [[5, 13], [1, 1, 2, 3], [2, 2, 4, 5]]
    assert pieces.byte_ends.to_list()[1] == [3, 3, 6, 8]
    texts = unigram.detokenize(unigram(["hello hello 中"])["token_ids"]).numpy()
    assert texts[0].decode() == "hello hello 中"


@pytest.mark.usefixtures("eagerly")
def test_byte_fallback(tmp_path):
    tokenizer = SubwordTokenizer(gemma_definition(OF_CHARACTERS, "helo中", ["\n\n"]))
    texts = ["hello hello中é", "", "<mask> \n\n<0x41>", "  "]
    assert spell(tokenizer, texts) == [
        ["hello", "▁hello", "中", "<0xC3>", "<0xA9>"],
        [],
        ["<mask>", "▁", "\n\n", *("<0x3C>", "<0x30>", "<0x78>", "<0x34>", "<0x31>", "<0x3E>")],
        ["▁", "▁"],
    ]
    pieces = tokenizer.tokenize_with_offsets(texts[:1])
    assert pieces.char_starts.to_list() == [[0, 5, 11, 12, 12]]
    assert pieces.byte_ends.to_list() == [[5, 11, 14, 16, 16]]
    trimmed = tokenizer.tokenize_with_offsets(texts[:1], trim_offsets=True)
    assert trimmed.char_starts.to_list() == [[0, 6, 11, 12, 12]]
    assert tokenizer.continues_word()[pieces.ids.values].tolist() == [True, False, True, True, True]
    assert tokenizer.readable_pieces()[-3:] == ["hello", "▁hello", "\n\n"]
    assert tokenizer.readable_pieces()[tokenizer.token_to_id("<0xC3>")] == "\\xc3"
    rows = tokenizer(texts[:1], ["é"], ragged=True)
    assert rows["token_ids"].to_list() == [[2, *pieces.ids.to_list()[0], 1, 5 + 0xC3, 5 + 0xA9, 1]]
    assert rows["segment_ids"].to_list() == [[0] * 7 + [1] * 3]
    texts = [text for text in texts if "<mask>" not in text]
    assert tokenizer.detokenize(tokenizer(texts)["token_ids"]).numpy().tolist() == [
        text.encode() for text in texts
    ]


@pytest.mark.usefixtures("eagerly")
def test_forms_of_pairs(byte_pairs, unigram):
    for tokenizer in (byte_pairs, unigram):
        rows = tokenizer(["hello", ""], ["", "hello"])
        first, second = (tokenizer.tokenize([text]).to_list()[0] for text in ("hello", "hello"))
        assert rows["token_ids"].numpy().tolist() == [[0, *first, 2, 2, 2], [0, 2, 2, *second, 2]]
        assert not np.any(rows["segment_ids"])
        long = tokenizer("hello hello hello", "hello hello", max_length=7)["token_ids"]
        assert len(long) == 7 and long.numpy()[[0, -1]].tolist() == [0, 2]
        assert tokenizer(["hello"], padding=8)["token_ids"].numpy().tolist() == [
            [0, *first, 2, *[1] * 5]
        ]
        with pytest.raises(ConfigError, match="at least 4"):
            tokenizer(["a"], ["b"], max_length=3)
    definition = bpe_definition(MERGES)
    ends = {"cls": ["<s>", 0], "sep": ["</s>", 2]}
    definition["post_processor"] = {"type": "BertProcessing", **ends}
    rows = SubwordTokenizer(definition)(["hello"], ["hello"])
    assert rows["segment_ids"].numpy().tolist() == [[0, 0, 0, 1, 1]]


@pytest.mark.usefixtures("eagerly")
def test_special_tokens_are_split_on_request(byte_pairs):
    split = SubwordTokenizer(bpe_definition(MERGES), split_special_tokens=True)
    assert spell(split, ["</s>"]) == [["<", "/", "s", ">"]]
    assert not split.keeping_special_tokens.split_special_tokens
    assert byte_pairs.keeping_special_tokens is byte_pairs


@pytest.mark.usefixtures("eagerly")
def test_tokens_that_normalization_makes_equal_or_empty():
    """Each token keeps its own flags; an empty one is in no text."""
    definition = unigram_definition(PIECES)
    steps = [{"type": "Lowercase"}, {"type": "Replace", "pattern": {"String": "~"}, "content": ""}]
    definition["normalizer"] = {"type": "Sequence", "normalizers": steps}
    size = len(definition["model"]["vocab"])
    for number, (token, lstrip) in enumerate(
        [("<A>", False), ("<a>", False), ("<c>", True), ("<d>", False), ("~", False)]
    ):
        flags = {"lstrip": lstrip, "rstrip": False, "normalized": True, "special": False}
        definition["added_tokens"].append({"id": size + number, "content": token, **flags})
    tokenizer = SubwordTokenizer(definition)
    space = tokenizer.token_to_id("▁")
    received = tokenizer.tokenize(["<C> <d>", "<d> <C>", "<A>"]).to_list()
    assert received == [[size + 2, space, size + 3], [size + 3, size + 2], [size + 1]]


@pytest.mark.usefixtures("eagerly")
def test_tokens_found_after_normalization(unigram):
    definition = copy.deepcopy(unigram.definition)
    definition["added_tokens"][4]["normalized"] = True
    definition["normalizer"]["normalizers"].insert(
        0, {"type": "Replace", "pattern": {"String": "＜"}, "content": "<"}
    )
    pieces = SubwordTokenizer(definition).tokenize_with_offsets(["hello ＜mask> ＜s>"])
    assert pieces.ids.to_list()[0][:2] == [unigram.tokenize(["hello"]).to_list()[0][0], 10]
    assert 0 in pieces.ids.to_list()[0]  # as in Hugging Face, a piece that looks like `<s>`


@pytest.mark.parametrize("name", ["unigram", "byte fallback"])
def test_in_a_saved_model_and_in_tf_data(name, byte_pairs, unigram, tmp_path):
    of_characters = gemma_definition(OF_CHARACTERS, "helo")
    tokenizer = unigram if name == "unigram" else SubwordTokenizer(of_characters)

    class Server(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, texts):
            return tokenizer(texts)["token_ids"]

    texts = tf.constant(["hello 中", "", "x <mask>"])
    tf.saved_model.save(Server(), str(tmp_path))
    found = operations(tmp_path)
    assert not [name for name in found if "BertTf" in name or "PyFunc" in name or "Table" in name]
    received = tf.saved_model.load(str(tmp_path)).serve(texts)
    np.testing.assert_array_equal(received, tokenizer(texts)["token_ids"])
    tokenizer = byte_pairs if name == "unigram" else tokenizer
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(3).map(tokenizer)
    np.testing.assert_array_equal(next(iter(batches))["token_ids"], tokenizer(texts)["token_ids"])


def test_serialisation(unigram):
    made = SubwordTokenizer(unigram.definition, max_length=9, errors="replace", mask_token="<unk>")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(made))
    for copied in (again, pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert copied.get_config() == made.get_config()
    with pytest.raises(ConfigError, match="`definition` must be an object"):
        SubwordTokenizer.from_config({"definition": "/etc/passwd"})


@pytest.mark.usefixtures("eagerly")
def test_malformed_text(unigram):
    texts = [b"a", b"a\xff", b"hello<mask>\xffx"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="malformed bytes in row"):
        unigram.tokenize_with_offsets(texts)
    lenient = SubwordTokenizer(unigram.definition, errors="replace")
    pieces = lenient.tokenize_with_offsets(texts)
    same = lenient.tokenize_with_offsets(["a", "a\ufffd", "hello<mask>\ufffdx"])
    assert pieces.ids.to_list() == same.ids.to_list()
    assert [row[-1] for row in pieces.byte_ends.to_list()] == [1, 2, 13]


@pytest.mark.parametrize("unit", ["a", "hello", " ", ".", "é ", "中"])
def test_time_is_linear(byte_pairs, unigram, unit):
    """Ten times the text takes far less than a hundred times the time."""

    def seconds(tokenizer, size):
        text = tf.constant([unit * (size // len(unit.encode()))])
        start = time.perf_counter()
        tokenizer.tokenize_with_offsets(text)
        return time.perf_counter() - start

    for tokenizer in (byte_pairs, unigram):
        small = min(seconds(tokenizer, 2_000) for _ in range(3))
        assert seconds(tokenizer, 20_000) < 40 * small + 0.5


@pytest.mark.usefixtures("eagerly")
def test_spans_of_spaces_are_empty():
    """The spans are those of tokenizers 0.23."""
    definition = bpe_definition(MERGES)
    vocabulary = definition["model"]["vocab"]
    vocabulary["\n\n"] = len(vocabulary)
    definition["added_tokens"].append(added(vocabulary, "\n\n"))
    texts = ["ab  ", "\n\n", "x \n\n"]
    assert spans_of(SubwordTokenizer(definition), texts) == [
        [(0, 1), (1, 2), (3, 3), (4, 4)],
        [(2, 2)],
        [(0, 1), (2, 2), (4, 4)],
    ]
    for add_prefix_space in (False, True):
        definition = bpe_definition(MERGES, add_prefix_space)
        definition["normalizer"] = {"type": "Lowercase"}
        first = [(0, 0)] * add_prefix_space
        assert spans_of(SubwordTokenizer(definition), ["a ", "É", "A  b", " "]) == [
            [*first, (0, 1), (2, 2)],
            [*first, (0, 1)],
            [*first, (0, 1), (2, 2), (3, 3), (3, 4)],
            [(0, 0)] if add_prefix_space else [(1, 1)],
        ]


SPANS_AT_ADDED_TOKENS = {
    # What tokenizers 0.23 prints without and with `trim_offsets`, with `add_prefix_space`:
    # Tokenizer.from_str(json.dumps(definition)).encode(text, add_special_tokens=False).offsets
    "<mask>hello": ([(0, 6), (6, 11)], [(0, 6), (7, 11)]),
    "<mask> hello": ([(0, 6), (6, 12)], [(0, 6), (7, 12)]),
    " <mask>hello": ([(0, 7), (7, 12)], [(0, 7), (8, 12)]),
    "</s>  y": ([(0, 4), (4, 5), (5, 6), (6, 7)], [(0, 4), (5, 5), (6, 6), (6, 7)]),
    "  </s>  x": (
        [(0, 1), (1, 2), (2, 6), (6, 7), (7, 8), (8, 9)],
        [(0, 0), (2, 2), (2, 6), (7, 7), (8, 8), (8, 9)],
    ),
    "  hello": ([(0, 1), (1, 7)], [(0, 0), (2, 7)]),
    "x</s>é": ([(0, 1), (0, 1), (1, 5), (5, 6), (5, 6)], [(0, 0), (0, 1), (1, 5), (6, 6), (5, 6)]),
}


@pytest.mark.parametrize("trims", [False, True])
def test_spans_after_added_tokens(trims):
    definition = bpe_definition(MERGES, add_prefix_space=True)
    definition["post_processor"]["trim_offsets"] = trims
    expected = [found[trims] for found in SPANS_AT_ADDED_TOKENS.values()]
    tokenizer = SubwordTokenizer(definition)
    assert spans_of(tokenizer, list(SPANS_AT_ADDED_TOKENS)) == expected


def spans_of(tokenizer, texts):
    pieces = tokenizer.tokenize_with_offsets(texts)
    rows = zip(pieces.char_starts.to_list(), pieces.char_ends.to_list())
    return [[*zip(*row)] for row in rows]


def write_files(directory, name):
    """The files of each form that `load_tokenizer` knows."""
    special = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces = [(piece, score, 1) for piece, score in PIECES]
    if name in ("roberta", "deberta"):
        vocab = bpe_definition(MERGES)["model"]["vocab"]
        if name == "deberta":
            others = dict(zip(SPECIAL, ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")))
            vocab = {others.get(piece, piece): index for piece, index in vocab.items()}
        (directory / "vocab.json").write_text(json.dumps(vocab), "utf-8")
        merges = "\n".join(" ".join(merge) for merge in MERGES)
        (directory / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", "utf-8")
    elif name == "albert":
        names = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
        special = [(token, 0.0, 2 if token == "<unk>" else 3) for token in names]
        content = sentencepiece_model([*special, *pieces, ("9,", -1.0, 1)], {"é": "e"}, unk_id=1)
        (directory / "spiece.model").write_bytes(content)
    elif name == "deberta-v2":
        special = [(f"[{token}]", 0.0, 3) for token in ("PAD", "CLS", "SEP")]
        special.append(("[UNK]", 0.0, 2))
        content = sentencepiece_model([*special, *pieces], {"ｈ": "h"}, unk_id=3)
        (directory / "spm.model").write_bytes(content)
    elif name == "rembert":
        special = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)]
        special += [(f"[{token}]", 0.0, 4) for token in ("CLS", "SEP", "MASK")]
        content = sentencepiece_model([*special, *pieces], {"ｈ": "h"}, unk_id=2)
        (directory / "sentencepiece.model").write_bytes(content)
    else:
        content = sentencepiece_model([*special, *pieces])
        (directory / "sentencepiece.bpe.model").write_bytes(content)
        (directory / "config.json").write_text(json.dumps({"model_type": name}))


@pytest.mark.usefixtures("eagerly")
def test_files_of_each_family(tmp_path):
    expected = {  # size, <s>, </s>, <pad>, <unk>, <mask>; the first piece
        "roberta": (267, 0, 2, 1, 3, 4),
        "xlm-roberta": (11, 0, 2, 1, 3, 10),
        "camembert": (14, 5, 6, 1, 3, 13),
        "deberta": (267, 0, 2, 1, 3, 4),
        "deberta-v2": (11, 1, 2, 0, 3, 10),
        "rembert": (12, 3, 4, 0, 2, 5),
        "albert": (12, 2, 3, 0, 1, 4),
    }
    spelled = {"deberta-v2": ["[UNK]"], "rembert": ["<unk>", "▁"]}  # the end of a text
    for name, numbers in expected.items():
        directory = tmp_path / name
        directory.mkdir()
        write_files(directory, name)
        tokenizer = load_tokenizer(directory, max_length=20)
        ids = [getattr(tokenizer, f"{t}_token_id") for t in ("cls", "sep", "pad", "unk", "mask")]
        assert (tokenizer.vocab_size, *ids) == numbers
        assert (tokenizer.separators, tokenizer.has_segments) == (
            (2, False) if name in ("roberta", "xlm-roberta", "camembert") else (1, True)
        )
        # sentencepiece's ids, and those of fairseq, which are 1 or 4 higher.
        places = {"albert": 6, "xlm-roberta": 3 + 2, "camembert": 4 + 4, "deberta-v2": 5}
        places |= {"rembert": 7, "roberta": -2, "deberta": -2}
        assert tokenizer.vocabulary[places[name]] in ("▁hello", "Ġhello")
        if name in spelled:
            words = ["▁hello", "▁hello", "[MASK]", "▁", *spelled[name]]
            assert spell(tokenizer, [" ｈello  hello [MASK] H "]) == [words]
        tokenizer.save_pretrained(tmp_path / "saved" / name)
        saved = load_tokenizer(tmp_path / "saved" / name)
        assert saved.get_config() == tokenizer.get_config()
    scores = dict(tokenizer.definition["model"]["vocab"])
    assert scores["9,"] == -101.0  # ALBERT splits numbers before a comma
    assert spell(tokenizer, ["HÉLLO ``x''"]) == [["▁hello", "▁", "<unk>"]]
    assert isinstance(load_tokenizer(minilm_like(tmp_path / "bert")), BertTokenizer)
    with pytest.raises(DataError, match="must contain"):
        load_tokenizer(tmp_path)
    (tmp_path / "roberta" / "merges.txt").unlink()
    with pytest.raises(DataError, match=r"vocab\.json and merges\.txt"):
        load_tokenizer(tmp_path / "roberta")


@pytest.mark.usefixtures("eagerly")
def test_options_of_the_model_are_not_those_of_the_tokenizer(tmp_path):
    write_files(tmp_path, "albert")
    lowercase = {"do_lower_case": False}
    (tmp_path / "config.json").write_text(json.dumps(lowercase))
    assert spell(load_tokenizer(tmp_path), ["HELLO"]) == [["▁hello"]]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(lowercase))
    assert spell(load_tokenizer(tmp_path), ["HELLO"]) == [["▁", "<unk>"]]


def test_optional_fields_of_sentencepiece(tmp_path):
    """Those that are not written have the defaults of sentencepiece_model.proto."""
    path = tmp_path / "sentencepiece.bpe.model"
    special = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    path.write_bytes(sentencepiece_model([*special, ("▁a", 0.0, 1), ("b", 0.0, 1)]))
    expected = load_tokenizer(tmp_path).get_config()
    written = [("<unk>", None, 2), ("<s>", None, 3), ("</s>", None, 3)]
    pieces = [*written, ("▁a", None, None), ("b", None, None)]
    path.write_bytes(sentencepiece_model(pieces, model_type=None, unk_id=None))
    assert load_tokenizer(tmp_path).get_config() == expected
    sentencepiece = pytest.importorskip("sentencepiece", reason="needs sentencepiece")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert processor.get_score(3) == 0.0 and processor.unk_id() == 0
    path.write_bytes(sentencepiece_model([*pieces, (None, None, None)]))
    assert load_tokenizer(tmp_path).vocabulary[-2] == ""
    for flags in (
        {"add_dummy_prefix": 0},
        {"escape_whitespaces": 0},
        {"treat_whitespace_as_suffix": 1},
    ):
        path.write_bytes(sentencepiece_model(pieces, **flags))
        with pytest.raises(DataError, match=f"bpe.model .*{next(iter(flags))}"):
            load_tokenizer(tmp_path)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["byte pairs", "template", "unigram"])
def test_what_a_short_definition_leaves_out_is_written(name, tmp_path):
    """`tokenizers` needs keys that ours does not."""
    definition = unigram_definition(PIECES) if name == "unigram" else bpe_definition(MERGES)
    definition["added_tokens"] = [
        {key: token[key] for key in ("id", "content", "special")}
        for token in definition["added_tokens"]
    ]
    if name == "unigram":
        definition["normalizer"] = {"type": "Strip", "strip_right": True}
        del definition["post_processor"]["special_tokens"]
    elif name == "template":
        template = unigram_definition(PIECES)["post_processor"]
        definition["post_processor"] = {
            "type": "Sequence",
            "processors": [{**template, "special_tokens": {}}, {"type": "ByteLevel"}],
        }
    else:
        definition["pre_tokenizer"] = {"type": "ByteLevel"}
    tokenizer = SubwordTokenizer(definition)
    tokenizer.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    texts = ["hello <mask> hello", " 中 </s>"]
    received = tokenizer(texts, texts[::-1], ragged=True)["token_ids"].to_list()
    expected = hugging_face(written).encode_batch([*zip(texts, texts[::-1])])
    assert received == [row.ids for row in expected]
    assert load_tokenizer(tmp_path).get_config() == tokenizer.get_config()


def test_an_error_names_the_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "WordPiece"}, "added_tokens": []}))
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        SubwordTokenizer(path)


def minilm_like(directory):
    directory.mkdir()
    (directory / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    return directory


def changed(definition, path, value):
    definition = copy.deepcopy(definition)
    *keys, last = path
    part = definition
    for key in keys:
        part = part[key]
    part[last] = value
    return definition


# A trie of 255 children that each lead back to their parent.
ENDLESS = struct.pack("<513I", 2048, 256 << 10, *[0] * 256, *(i | i << 10 for i in range(1, 256)))
BAD = [
    ("bpe", ["model", "type"], "WordLevel", DataError, "`model.type`"),
    ("bpe", ["model", "vocab", "<s>"], "0", DataError, "vocab"),
    ("bpe", ["model", "vocab", "<s>"], 9999, DataError, "id"),
    ("bpe", ["model", "vocab", "a"], 0, DataError, "ids 0 to"),
    ("bpe", ["model", "merges"], ["a"], DataError, "two pieces"),
    ("bpe", ["model", "merges"], ["a b c"], DataError, "two pieces"),
    ("bpe", ["model", "merges"], [[1, 2]], DataError, "merges"),
    ("bpe", ["model", "dropout"], 0.1, DataError, "dropout"),
    ("bpe", ["model", "byte_fallback"], True, ConfigError, "`pre_tokenizer`"),
    ("gemma", ["model", "byte_fallback"], False, ConfigError, "`pre_tokenizer`"),
    ("gemma", ["model", "byte_fallback"], 1, DataError, "byte_fallback"),
    ("gemma", ["model", "ignore_merges"], True, ConfigError, "ignore_merges"),
    ("gemma", ["model", "merges"], [["he", "l"]], DataError, "no piece 'hel'"),
    ("gemma", ["pre_tokenizer", "behavior"], "Isolated", ConfigError, "`pre_tokenizer`"),
    ("unigram", ["model", "byte_fallback"], True, DataError, "byte_fallback"),
    ("bpe", ["model", "end_of_word_suffix"], "</w>", DataError, "suffix"),
    ("bpe", ["pre_tokenizer"], None, ConfigError, "`pre_tokenizer`"),
    ("bpe", ["pre_tokenizer", "use_regex"], False, ConfigError, "`pre_tokenizer`"),
    (
        "bpe",
        ["pre_tokenizer"],
        {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        },
        ConfigError,
        "`pre_tokenizer`",
    ),
    ("bpe", ["model", "ignore_merges"], 1, DataError, "ignore_merges"),
    ("bpe", ["pre_tokenizer"], {"type": "Sequence", "pretokenizers": 3}, ConfigError, "must be"),
    ("bpe", ["post_processor"], None, ConfigError, "`post_processor`"),
    ("bpe", ["post_processor", "cls"], ["no", 7], ConfigError, "`post_processor`"),
    (
        "bpe",
        ["post_processor"],
        {"type": "Sequence", "processors": [bpe_definition(MERGES)["post_processor"]] * 2},
        ConfigError,
        "`post_processor`",
    ),
    ("bpe", ["post_processor", "cls"], 7, DataError, "cls"),
    ("bpe", ["added_tokens", 0, "single_word"], True, DataError, "single_word"),
    ("bpe", ["added_tokens", 0, "content"], "", DataError, "content"),
    ("bpe", ["added_tokens", 0, "id"], 5, DataError, "id of its piece"),
    ("bpe", ["added_tokens"], [{}] * 501, DataError, "500"),
    ("unigram", ["model", "unk_id"], 99, DataError, "unk_id"),
    ("unigram", ["model", "unk_id"], None, DataError, "unk_id"),
    ("unigram", ["model", "vocab", 5], ["a", "b"], DataError, "score"),
    ("unigram", ["model", "vocab", 5], ["a", float("nan")], DataError, "score"),
    ("unigram", ["model", "vocab", 5], ["a" * 1001, -1.0], DataError, "score"),
    ("unigram", ["model", "vocab"], [], DataError, "vocab"),
    ("unigram", ["pre_tokenizer", "prepend_scheme"], "first", ConfigError, "`pre_tokenizer`"),
    ("unigram", ["pre_tokenizer", "replacement"], "_", ConfigError, "`pre_tokenizer`"),
    ("unigram", ["post_processor", "single"], [], ConfigError, "`post_processor`"),
    ("unigram", ["post_processor", "pair"], [{"A": 1}], DataError, "`post_processor`"),
    ("unigram", ["normalizer"], {"type": "NFD"}, ConfigError, "normalizer"),
    ("unigram", ["normalizer"], {"type": "Sequence"}, ConfigError, "normalizers"),
    (
        "unigram",
        ["normalizer"],
        {"type": "Replace", "pattern": {"String": 5}, "content": "a"},
        ConfigError,
        "normalizer",
    ),
    (
        "unigram",
        ["normalizer"],
        {"type": "Precompiled", "precompiled_charsmap": "é"},
        DataError,
        "`precompiled_charsmap` must be valid",
    ),
    (
        "unigram",
        ["normalizer"],
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        DataError,
        "charsmap",
    ),
    (
        "unigram",
        ["normalizer"],
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(ENDLESS).decode()},
        DataError,
        "too many rules",
    ),
    ("bpe", ["model", "merges"], [["he", "中"]], DataError, "no piece '(he)?中'"),
    ("unigram", ["added_tokens", 0], {"id": 5, "content": "x"}, DataError, "id of its own"),
]


@pytest.mark.parametrize("kind, path, value, error, message", BAD)
def test_bad_definitions(kind, path, value, error, message):
    made = {"bpe": bpe_definition(MERGES), "unigram": unigram_definition(PIECES)}
    definition = made.get(kind) or gemma_definition(OF_CHARACTERS, "helo")
    with pytest.raises(error, match=message):
        SubwordTokenizer(changed(definition, path, value))


def test_byte_fallback_needs_all_bytes():
    definition = gemma_definition(OF_CHARACTERS, "helo")
    vocab = definition["model"]["vocab"]
    vocab["other"] = vocab.pop("<0x41>")
    with pytest.raises(DataError, match="pieces of all 256 bytes.*no piece <0x41>"):
        SubwordTokenizer(definition)


def test_damaged_files(tmp_path):
    """A changed byte is read as something else, or refused, and nothing else happens."""
    write_files(tmp_path, "albert")
    path = tmp_path / "spiece.model"
    content = path.read_bytes()
    generator = random.Random(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(300)] = generator.randrange(256)
        path.write_bytes(damaged[: generator.choice([len(content), len(content) - 9, 50])])
        try:
            load_tokenizer(tmp_path)
        except UserError:
            refused += 1
    assert refused > 100
    path.write_bytes(sentencepiece_model([("<unk>", 0.0, 2)], model_type=2))
    with pytest.raises(DataError, match="Unigram model"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}, "added_tokens": 3}')
    with pytest.raises(DataError, match="added_tokens"):
        load_tokenizer(tmp_path)


def test_a_merge_of_a_character_that_is_no_byte():
    definition = bpe_definition([*MERGES, ("he", "中"), ("h", "中")])
    definition["model"]["vocab"]["中"] = len(definition["model"]["vocab"])
    with pytest.raises(DataError, match="Every merge must be of characters that stand for bytes"):
        SubwordTokenizer(definition)


def test_errors_of_a_definition_name_the_file(tmp_path):
    normalizer = {"type": "Precompiled", "precompiled_charsmap": "é"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(unigram_definition(PIECES, normalizer=normalizer)))
    for read in (SubwordTokenizer, lambda path: load_tokenizer(path.parent)):
        with pytest.raises(DataError, match=r"tokenizer\.json: `precompiled_charsmap` must be"):
            read(path)
    path.write_text(json.dumps(bpe_definition(MERGES, dropout=0.5)))
    with pytest.raises(DataError, match=r"tokenizer\.json.*dropout"):
        load_tokenizer(tmp_path)


def test_what_a_file_makes_is_bounded_by_its_size(tmp_path, monkeypatch):
    """Rules that share a long text, pieces of two bytes, and fields of another encoding."""
    long = charsmap({"é": "a" * 1001})
    units = [256 << 10, 1 << 31, *[0] * 510]  # the root, the place of the text, children
    for byte in range(1, 128):
        units[256 ^ byte] = byte | 256 | (256 ^ byte ^ 1) << 10  # a rule with this text
    shared = struct.pack("<513I", 2048, *units) + b"a" * 900 + b"\0"
    for rules, message in ((shared, "results that are too long"), (long, "results that are too")):
        step = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(rules).decode()}
        with pytest.raises(DataError, match=message):
            SubwordTokenizer(unigram_definition(PIECES, normalizer=step))
    monkeypatch.setattr("bert_tf.text.sentencepiece_model.MOST_PIECES", 1000)  # to take less time
    path = tmp_path / "spiece.model"
    for content, message in (
        (b"\x0a\x00" * 1001, "more than 1,000 pieces"),
        (b"\x08\x05", "piece with the encoding 0"),
        (b"\x0a\x00\x1a\x02\x10\x05", "charsmap with the encoding 0"),
        (b"\x0a\x02\x10\x05", "score with the encoding 0"),
        (b"\x0a\x05a", "a truncated field"),
        (b"\x0a", "index out of range"),
        (b"\x0b", "a field with the encoding 3"),
        (b"\xff" * 11, "more than 64 bits"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"spiece.model must be .*{message}"):
            load_tokenizer(tmp_path)
    pieces = [["a", -1]] * 1_000_001
    with pytest.raises(DataError, match="1000000 items"):
        SubwordTokenizer(changed(unigram_definition(PIECES), ["model", "vocab"], pieces))
    with pytest.raises(DataError, match="1000000 items"):
        SubwordTokenizer(changed(bpe_definition(MERGES), ["model", "merges"], pieces))
    pieces = [[f"{number:01000}", -1] for number in range(1001)]
    with pytest.raises(DataError, match="1,000,000 characters"):
        SubwordTokenizer(changed(unigram_definition(PIECES), ["model", "vocab"], pieces))


def test_memory_of_a_unigram_model():
    generator = random.Random(0)
    pieces = [(generator.randbytes(490).hex(), -1.0) for _ in range(1000)]
    definition = unigram_definition(pieces)
    tracemalloc.start()
    try:
        SubwordTokenizer(definition)
        assert tracemalloc.get_traced_memory()[1] < 42 * 980_000  # bytes for each character
    finally:
        tracemalloc.stop()


def test_trimmed_offsets_begin_with_text():
    tokenizer = SubwordTokenizer(unigram_definition([("▁the", -1.0), ("▁", -3.0), ("é", -4.0)]))
    texts = ["the the", "the  é\u3000 é", " ", ""]
    plain = tokenizer.tokenize_with_offsets(texts)
    pieces = tokenizer.tokenize_with_offsets(texts, trim_offsets=True)
    assert pieces.ids.to_list() == plain.ids.to_list()
    for row, text in enumerate(texts):
        spans = zip(plain.char_starts[row].numpy(), plain.char_ends[row].numpy())
        before = [text[start:end] for start, end in spans]
        spans = zip(pieces.char_starts[row].numpy(), pieces.char_ends[row].numpy())
        assert [text[start:end] for start, end in spans] == [span.lstrip() for span in before]
        spans = zip(pieces.byte_starts[row].numpy(), pieces.byte_ends[row].numpy())
        received = [text.encode()[start:end].decode() for start, end in spans]
        assert received == [span.lstrip() for span in before]
    assert " the" in [texts[0][a:b] for a, b in zip(plain.char_starts[0], plain.char_ends[0])]
