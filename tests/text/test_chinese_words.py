"""Chinese words as units, against transformers, with a fake jieba and a real one."""

import copy
import json
import pickle
import random

import keras
import pytest
import tensorflow as tf

from bert_tf.errors import ConfigError, UserError
from bert_tf.text import BertTokenizer, learn_vocabulary, load_tokenizer, whole_word_units
from bert_tf.text.chinese_words import ChineseWords, jieba_cut
from bert_tf.text.unicode_tables import HUGGING_FACE
from tests.text import fuzz
from tests.text.fake_jieba import WORDS, cut, install
from tests.text.subwords import assert_same, bpe_definition
from tests.tools.running import run

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, *"今天气非常好北京大学恤。中tabc", "##b", "##t", "天气", "北京大学"]
PIECES += ["大学", "c++", "今天", "##大学", "\U00020000中", "é", "e", "П", "п"]
INSERTED = [*WORDS, "T恤", "C++", "[MASK]", " ", "，", "天\u0301气", "北京\u200b大学", "豈", "ab"]


def made(**options):
    return BertTokenizer(PIECES, segmenter="jieba", **options)


def reference(pieces, lowercase, strip_accents, cut):
    """transformers' RoFormerTokenizer 5.24, in the package that it is made of."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    vocab = {piece: index for index, piece in enumerate(pieces)}
    options = {"strip_accents": False, "lowercase": False, "clean_text": False}
    spaced = tokenizers.normalizers.BertNormalizer(handle_chinese_chars=True, **options)

    class Jieba:
        def split(self, _, text):
            parts, start = [], 0
            for word in cut(str(text), hmm=False):
                inside = [word] if word in vocab else spaced.normalize_str(word).split()
                for part in inside:
                    parts.append(text[start : start + len(part)])
                    start += len(part)
                start += len(word) * (not inside)
            return parts

        def pre_tokenize(self, text):
            text.split(self.split)

    model = tokenizers.models.WordPiece(vocab, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        True, False, strip_accents, lowercase
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(Jieba())
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


@pytest.mark.usefixtures("fake_jieba")
def test_a_word_that_is_a_piece_is_one_token():
    tokenizer = made()
    texts = tf.constant(["今天天气非常好。", "", "北京大学T恤 c++ab", " 北京 大学\n"])
    expected = [
        ["今天", "天气", "非", "常", "好", "。"],
        [],
        ["北京大学", "t", "恤", "c++", "a", "##b"],
        ["北", "京", "大学"],
    ]
    expected = [[piece.encode() for piece in row] for row in expected]
    assert tokenizer.pieces(texts).to_list() == expected
    graph = tf.function(tokenizer.pieces, autograph=False)
    assert graph(texts).to_list() == expected
    dataset = tf.data.Dataset.from_tensors(texts).map(tokenizer.pieces)
    assert next(iter(dataset)).to_list() == expected
    places = tokenizer.tokenize_with_offsets(texts)
    assert places.char_starts.to_list()[2] == [0, 4, 5, 7, 10, 11]
    assert places.char_ends.to_list()[2] == [4, 5, 6, 10, 11, 12]
    assert places.byte_ends.to_list()[2] == [12, 13, 16, 20, 21, 22]
    words = tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()[2].decode()
    assert words == "北京大学 t 恤 c++ ab"
    _, units = whole_word_units(tokenizer, texts)
    assert units.to_list()[2] == [0, 1, 2, 3, 4, 4]
    rows = tokenizer(["今天"], ["今天好"])
    assert rows["segment_ids"].numpy().tolist() == [[0, 0, 0, 1, 1, 1]]


@pytest.mark.usefixtures("fake_jieba", "eagerly")
@pytest.mark.parametrize("lowercase, strip_accents", [(True, None), (False, None), (False, True)])
def test_ids_of_fuzzed_strings(lowercase, strip_accents, is_full):
    expected = reference(PIECES, lowercase, strip_accents, cut)
    tokenizer = made(
        lowercase=lowercase,
        strip_accents=strip_accents,
        split_special_tokens=False,
        character_rules=HUGGING_FACE,
        max_input_chars_per_word=100,
    )
    for texts in fuzz.batches(20_000 if is_full else 1_000, INSERTED):
        encodings = [one.ids for one in expected.encode_batch(texts, add_special_tokens=False)]
        assert_same(texts, tokenizer.tokenize(texts).to_list(), encodings)
        pieces = tokenizer.tokenize_with_offsets(texts)
        assert_same(texts, pieces.ids.to_list(), encodings)
        starts, ends = pieces.char_starts.to_list(), pieces.char_ends.to_list()
        for text, *spans in zip(texts, starts, ends):
            assert all(0 <= a < b <= len(text) for a, b in zip(*spans)), text


@pytest.mark.usefixtures("eagerly")
def test_ids_of_the_class_of_transformers(materials, is_full, tmp_path):
    """rjieba and jieba find the same words."""
    reason = "needs transformers and rjieba"
    transformers = pytest.importorskip("transformers", reason=reason)
    rjieba = pytest.importorskip("rjieba", reason=reason)
    jieba_cut.cache_clear()
    texts = (materials / "chinese_text" / "pos.txt").read_text("utf-8", "replace").split("\n")
    texts = [text for text in texts if text][: 5_000 if is_full else 500]
    counted = learn_vocabulary(texts, 6_000, progress=False, segmenter="jieba")
    assert sum(len(piece) > 1 and "一" <= piece <= "\u9fff" for piece in counted) > 1_000
    fuzzed = random.Random(0)
    texts += [fuzz.random_string(fuzzed) + fuzzed.choice(texts)[:20] for _ in range(len(texts))]
    theirs = transformers.RoFormerTokenizer({piece: i for i, piece in enumerate(counted)})
    options = {"character_rules": HUGGING_FACE, "max_input_chars_per_word": 100}
    tokenizer = BertTokenizer(counted, segmenter="jieba", **options).keeping_special_tokens
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert_same(texts, tokenizer.tokenize(texts).to_list(), expected)
    tokenizer.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(again).__name__ == "RoFormerTokenizer"
    assert again(texts[:50], add_special_tokens=False)["input_ids"] == expected[:50]
    pair = again("今天", "天气")["token_type_ids"]
    assert pair == tokenizer("今天", "天气")["segment_ids"].numpy().tolist()
    theirs.save_pretrained(tmp_path / "theirs")
    opened = load_tokenizer(tmp_path / "theirs", split_special_tokens=False)
    assert opened.get_config() == tokenizer.get_config()
    jieba = pytest.importorskip("jieba", reason=reason)
    assert [rjieba.cut(text, False) for text in texts] == [
        jieba.lcut(text, HMM=False) for text in texts
    ]


def test_either_package_will_do(fake_jieba, eagerly):
    for module in ("rjieba", "jieba"):
        fake_jieba(module)
        assert made().pieces(["今天好"]).to_list() == [["今天".encode(), "好".encode()]]
    fake_jieba("neither")
    with pytest.raises(UserError, match=r"jieba must be installed.*'bert-tf\[chinese\]'"):
        made()
    with pytest.raises(UserError, match=r"jieba must be installed.*'bert-tf\[chinese\]'"):
        learn_vocabulary(iter(int, 1), 50, segmenter="jieba", progress=False)
    assert BertTokenizer(PIECES).pieces(["今天"]).to_list() == [["今".encode(), "天".encode()]]


@pytest.mark.usefixtures("fake_jieba", "eagerly")
def test_other_options():
    texts = ["今天[MASK]12天气", b"\xff\xe4\xbb\x8a"]
    tokenizer = made(
        split_special_tokens=False, errors="replace", number_token="c++", truncation_side="left"
    )
    pieces = [[p.decode() for p in row] for row in tokenizer.pieces(texts).to_list()]
    assert pieces == [["今天", "[MASK]", "c++", "天气"], ["今"]]
    rows = tokenizer(texts[:1], max_length=4, ragged=True)["token_ids"]
    assert [PIECES[index] for index in rows[0]] == ["[CLS]", "c++", "天气", "[SEP]"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="valid UTF-8"):
        made().tokenize(texts)
    assert made(max_input_chars_per_word=1).pieces(["今天好"]).to_list() == [
        [b"[UNK]", "好".encode()]
    ]


@pytest.mark.usefixtures("fake_jieba", "eagerly")
def test_it_is_saved_and_opened(tmp_path):
    tokenizer = made(lowercase=False, additional_special_tokens=["é"], has_segments=False)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(tokenizer))
    for one in (again, pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert one.get_config() == tokenizer.get_config()
        assert one.pieces(["今天"]).to_list() == [["今天".encode()]]
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).get_config() == tokenizer.get_config()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "RoFormerTokenizer"
    (tmp_path / "tokenizer.json").unlink()  # as older versions of transformers write
    assert load_tokenizer(tmp_path).get_config() == tokenizer.get_config()
    BertTokenizer(PIECES).save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path).segmenter is None


@pytest.mark.usefixtures("fake_jieba", "eagerly")
@pytest.mark.parametrize(
    "config, model, segmenter",
    [
        ({"tokenizer_class": "RoFormerTokenizer"}, {}, "jieba"),
        ({"tokenizer_class": "RoFormerTokenizerFast"}, {"model_type": "bert"}, "jieba"),
        ({"do_lower_case": True}, {"model_type": "roformer"}, "jieba"),
        ({}, {"tokenizer_class": "RoFormerTokenizer"}, "jieba"),
        ({}, {"model_type": "roformer"}, "jieba"),
        ({"tokenizer_class": "BertTokenizer"}, {"model_type": "roformer"}, None),
        ({}, {"model_type": "roformer", "tokenizer_class": "BertTokenizerFast"}, None),
    ],
)
def test_directories_of_hugging_face(config, model, segmenter, tmp_path):
    """RoFormerTokenizer separates ideographs whatever `tokenize_chinese_chars` says."""
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), "utf-8")
    is_usual = {"tokenize_chinese_chars": segmenter is None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **is_usual}), "utf-8")
    (tmp_path / "config.json").write_text(json.dumps(model), "utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.segmenter == segmenter
    assert tokenizer.split_on_cjk and tokenizer.character_rules == HUGGING_FACE
    assert load_tokenizer(tmp_path, segmenter=None).pieces(["今天"]).to_list() == [
        ["今".encode(), "天".encode()]
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(bpe_definition([])), "utf-8")
    if segmenter is not None:
        with pytest.raises(ConfigError, match="must be of WordPiece for RoFormerTokenizer"):
            load_tokenizer(tmp_path)


@pytest.mark.usefixtures("fake_jieba", "eagerly")
def test_what_is_refused(caplog):
    for options, message in (
        ({"segmenter": "mecab"}, "`segmenter` must be None or 'jieba'"),
        ({"segmenter": "jieba", "separators": 2}, "`separators` must be 1 with"),
        ({"segmenter": "jieba", "split_on_cjk": False}, "`split_on_cjk` must be True with"),
    ):
        with pytest.raises(ConfigError, match=message):
            BertTokenizer(PIECES, **options)
        if "separators" not in options:
            with pytest.raises(ConfigError, match=message):
                learn_vocabulary(["今天"], 50, progress=False, **options)
    with pytest.raises(ConfigError, match="segmenter"):
        BertTokenizer.from_config({"vocabulary": PIECES, "segmenter": "rjieba"})
    with pytest.raises(UserError, match="`segmenter` must be given to the constructor"):
        made().segmenter = None
    assert not caplog.text
    tokenizer = BertTokenizer([*SPECIAL, "今", "天"], segmenter="jieba")
    assert "no Chinese word" in caplog.text
    assert tokenizer.tokenize(["今天"]).to_list() == [[5, 6]]


@pytest.mark.usefixtures("fake_jieba", "eagerly")
def test_no_code_points():
    words = ChineseWords(frozenset())
    assert words.starts(tf.zeros([0], tf.int32), tf.zeros([0], tf.bool)).shape == [0]


@pytest.mark.usefixtures("fake_jieba", "eagerly")
@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe"])
def test_learned_words(algorithm):
    texts = ["今天天气 film", "今天北京大学。", "今天T恤 film films", "非常 T恤"] * 2
    options = {"algorithm": algorithm, "segmenter": "jieba", "progress": False}
    learned = learn_vocabulary(texts, 60, **options)
    assert {"今天", "天气", "北京大学", "t恤", "非常", "film", "今", "恤", "。", "t"} <= {*learned}
    assert not [piece for piece in learned if piece.startswith("##") and piece[2] >= "一"]
    tokenizer = BertTokenizer(learned, segmenter="jieba")
    assert tokenizer.unk_token_id not in tokenizer.tokenize(texts).flat_values.numpy()
    # 5 special tokens and 22 characters leave room for 3: two words are among the most frequent.
    characters = [piece for piece in learned if len(piece.removeprefix("##")) == 1]
    few = learn_vocabulary(texts, 5 + len(characters) + 3, **options)
    assert few[: 5 + len(characters)] == learned[: 5 + len(characters)]
    assert few[5 + len(characters) :][:2] == ["今天", "t恤"] and len(few) <= len(characters) + 8
    rare = learn_vocabulary([*texts, "大学"], 60, min_frequency=2, **options)
    assert "大学" not in rare and {"大", "学"} <= {*rare}


def test_build_vocab(tmp_path):
    """Also the pre-training data, whose program has the flag that is printed."""
    text = "今天天气 film\n今天北京大学。\n\n" * 3
    (tmp_path / "text").write_text(text, "utf-8")
    flags = [f"--input_file={tmp_path / 'text'}", f"--output_file={tmp_path / 'vocab.txt'}"]
    flags += ["--vocab_size=60", "--segmenter=jieba", "--algorithm=bpe"]
    result = run("build_vocab", *flags, prepare=install)
    assert result.returncode == 0, result.stderr
    pieces = (tmp_path / "vocab.txt").read_text("utf-8").split()
    assert {"今天", "天气", "北京大学", "film", "今"} <= {*pieces}
    assert "--vocab_segmenter=jieba" in result.stdout
    flags_of_data = [flags[0], f"--output_file={tmp_path / 'data'}", "--num_processes=1"]
    flags_of_data += [f"--vocab_file={tmp_path / 'vocab.txt'}", "--vocab_segmenter=jieba"]
    result_of_data = run("create_pretraining_data", *flags_of_data, prepare=install)
    assert result_of_data.returncode == 0, result_of_data.stderr
    found = set()
    for record in tf.data.TFRecordDataset(str(tmp_path / "data")).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        found |= {*features["input_ids"].int64_list.value}
    assert pieces.index("北京大学") in found and pieces.index("大") not in found
