"""Every key of the tokenizer's files that changes ids is honoured or refused by name."""

import json

import pytest

from bert_tf.errors import ConfigError, UserError
from bert_tf.text import BertTokenizer, load_tokenizer
from tests.text.subwords import added, bpe_definition, unigram_definition

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "a", "##a", "b", "[", "]", "e", "中", "[E]"]
IDS = {piece: index for index, piece in enumerate(PIECES)}
MERGES = [("h", "e"), ("Ġ", "he")]


def wordpiece_definition(**parts):
    """A `tokenizer.json` of BERT's form as `tokenizers` writes it, with other `parts`."""

    def item(name, kind="SpecialToken", segment=0):
        return {kind: {"id": name, "type_id": segment}}

    single = [item("[CLS]"), item("A", "Sequence"), item("[SEP]")]
    second = parts.pop("second", 1)
    pair = [*single, item("B", "Sequence", second), item("[SEP]", segment=second)]
    ends = {token: {"id": token, "ids": [IDS[token]], "tokens": [token]} for token in SPECIAL[2:4]}
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(IDS, token) for token in SPECIAL],
        "normalizer": {"type": "BertNormalizer", "lowercase": True, **normalizer},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": ends,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": IDS,
        },
    } | parts


def write(directory, definition, **config):
    (directory / "tokenizer.json").write_text(json.dumps(definition), "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return directory


def rows_of(tokenizer, texts, pairs=None):
    rows = tokenizer(texts, pairs, ragged=True)
    return rows["token_ids"].to_list(), rows["segment_ids"].to_list()


def theirs(definition, texts, pairs=None):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(definition))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    rows = tokenizer.encode_batch(texts if pairs is None else [*zip(texts, pairs)])
    return [row.ids for row in rows], [row.type_ids for row in rows]


def changed(key, **values):
    """A definition in which a part has other values."""
    definition = wordpiece_definition()
    return {key: {**definition[key], **values}}


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    "parts",
    [
        {},
        changed("model", max_input_chars_per_word=3),
        changed("model", unk_token="b"),
        changed("normalizer", lowercase=False),
        changed("normalizer", strip_accents=False),
        changed("normalizer", handle_chinese_chars=False),
        {"second": 0},
        {"post_processor": {"type": "BertProcessing", "cls": ["b", 7], "sep": ["[SEP]", 3]}},
        {"added_tokens": [added(IDS, token) for token in [*SPECIAL, "[E]"]]},
    ],
    ids=lambda parts: "".join(map(str, parts)),
)
def test_ids_follow_the_definition(parts, tmp_path):
    """Also after `save_pretrained`."""
    definition = wordpiece_definition(**parts)
    texts = ["a" * 3, "a" * 4, "a" * 100, "a" * 101, "A Á 中a ?", "b [E]a [e]"]
    expected = theirs(definition, texts), theirs(definition, texts, texts[::-1])
    tokenizer = load_tokenizer(write(tmp_path, definition, unk_token=None))
    tokenizer.save_pretrained(tmp_path / "saved")
    for one in (tokenizer, load_tokenizer(tmp_path / "saved")):
        assert (rows_of(one, texts), rows_of(one, texts, texts[::-1])) == expected
    assert load_tokenizer(tmp_path / "saved").get_config() == tokenizer.get_config()


def test_whose_words_a_directory_has(tmp_path):
    """200 characters are google-research/bert's limit; Hugging Face's is 100."""

    def rules():
        tokenizer = BertTokenizer.from_pretrained(tmp_path)
        return tokenizer.max_input_chars_per_word, tokenizer.character_rules

    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    assert rules() == (200, "google")
    BertTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert rules() == (200, "google")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    assert rules() == (100, "huggingface")
    (tmp_path / "bert_config.json").write_text("{}")
    assert rules() == (200, "google")
    write(tmp_path, wordpiece_definition())
    assert rules() == (100, "huggingface")
    texts = ["a\ue000a", "\ue000", "aΑΣ"]
    tokenizer = load_tokenizer(tmp_path)
    assert rows_of(tokenizer, texts) == theirs(wordpiece_definition(), texts)
    google = BertTokenizer.from_pretrained(tmp_path, character_rules="google")
    assert google.tokenize(texts[:2]).to_list() == [[1], [1]]
    with pytest.raises(UserError, match="`character_rules` must be one of"):
        BertTokenizer.from_pretrained(tmp_path, character_rules="bert")
    write(tmp_path, wordpiece_definition(**changed("model", max_input_chars_per_word=50)))
    assert BertTokenizer.from_pretrained(tmp_path).max_input_chars_per_word == 50
    assert BertTokenizer.from_pretrained(tmp_path, max_input_chars_per_word=9).tokenize(
        ["a" * 10]
    ).to_list() == [[1]]


@pytest.mark.parametrize(
    "config, name, value",
    [
        ({"max_len": 12}, "max_length", 12),
        ({"model_max_length": 9, "max_len": 12}, "max_length", 9),
        ({"truncation_side": "left"}, "truncation_side", "left"),
        ({"model_input_names": ["input_ids", "attention_mask"]}, "has_segments", False),
        ({"additional_special_tokens": ["[E]"]}, "additional_special_tokens", ["[E]"]),
        ({"extra_special_tokens": {"x": "[E]"}}, "additional_special_tokens", ["[E]"]),
        ({"added_tokens_decoder": {"12": added(IDS, "[E]")}}, "additional_special_tokens", ["[E]"]),
        ({"bos_token": "[CLS]", "eos_token": "[SEP]"}, "additional_special_tokens", []),
        ({"padding_side": "left", "clean_up_tokenization_spaces": True}, "pad_token", "[PAD]"),
    ],
)
def test_keys_of_the_configuration(config, name, value, tmp_path):
    tokenizer = load_tokenizer(write(tmp_path, wordpiece_definition(), **config))
    assert getattr(tokenizer, name) == value
    tokenizer.save_pretrained(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").get_config() == tokenizer.get_config()


def test_rows_follow_truncation_and_padding(tmp_path):
    """transformers reads where to cut, but not how long; tokenizer_config.json overrides it."""
    truncation = {"direction": "Left", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    parts = {"truncation": truncation, "padding": {"pad_token": "b", "pad_id": 7}}
    for definition in (
        wordpiece_definition(**parts),
        {**unigram_definition([("b", -1.0)]), **parts},
    ):
        tokenizer = load_tokenizer(write(tmp_path, definition))
        assert (tokenizer.truncation_side, tokenizer.pad_token) == ("left", "b")
        assert tokenizer.max_length is None
        tokenizer = load_tokenizer(write(tmp_path, definition, truncation_side="right"))
        assert tokenizer.truncation_side == "right"


@pytest.mark.parametrize(
    "parts, config, message",
    [
        (changed("normalizer", clean_text=False), {}, "`normalizer.clean_text`"),
        ({"normalizer": None}, {}, "`normalizer`"),
        ({"normalizer": {"type": "NFC"}}, {}, "`normalizer.type`"),
        ({"pre_tokenizer": None}, {}, "`pre_tokenizer`"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, {}, "`pre_tokenizer.type`"),
        ({"post_processor": None}, {}, "`post_processor`"),
        (changed("post_processor", pair=[]), {}, "`post_processor`"),
        (changed("model", continuing_subword_prefix="@@"), {}, "continuing_subword_prefix"),
        (changed("model", type="WordLevel"), {}, "`model.type`"),
        ({"truncation": {"direction": "Up"}}, {}, "`truncation.direction`"),
        ({}, {"do_basic_tokenize": False}, "`do_basic_tokenize`"),
        ({}, {"never_split": ["x"]}, "`never_split`"),
        ({}, {"wordpieces_prefix": "@@"}, "`wordpieces_prefix`"),
        ({}, {"word_tokenizer_type": "mecab"}, "`word_tokenizer_type`"),
        ({}, {"subword_tokenizer_type": "character"}, "`subword_tokenizer_type`"),
        ({}, {"tokenizer_class": "SplinterTokenizerFast"}, "`tokenizer_class`"),
        ({}, {"split_by_punct": True}, "`split_by_punct`"),
        ({}, {"add_eos_token": True}, "`add_eos_token`"),
        ({}, {"unk_token": "b"}, "`unk_token`"),
        ({}, {"sep_token": "b"}, "`sep_token`"),
        ({}, {"added_tokens_decoder": {"99": {"content": "[F]"}}}, r"Added tokens must.*\[F\]"),
    ],
)
def test_what_changes_ids_is_refused_by_name(parts, config, message, tmp_path):
    directory = write(tmp_path, wordpiece_definition(**parts), **config)
    with pytest.raises(UserError, match=message) as error:
        load_tokenizer(directory)
    assert str(tmp_path) in str(error.value)


def test_the_model_names_the_tokenizer_if_its_files_do_not(tmp_path):
    (tmp_path / "config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    with pytest.raises(UserError, match=rf"`tokenizer_class` in {tmp_path}/config\.json"):
        load_tokenizer(write(tmp_path, wordpiece_definition()))
    load_tokenizer(write(tmp_path, wordpiece_definition(), tokenizer_class="BertTokenizer"))


def test_null_is_as_a_key_that_is_missing(tmp_path):
    config = dict.fromkeys(("tokenizer_class", "never_split", "sp_model_kwargs", "add_eos_token"))
    config |= dict.fromkeys(("truncation_side", "errors", "model_input_names", "bos_token"))
    tokenizer = load_tokenizer(write(tmp_path, wordpiece_definition(), **config))
    expected = load_tokenizer(write(tmp_path, wordpiece_definition()))
    assert tokenizer.get_config() == expected.get_config()


def test_an_added_token_of_single_words(tmp_path):
    token = added(IDS, "[E]") | {"single_word": True}
    write(tmp_path, wordpiece_definition(added_tokens=[token]))
    with pytest.raises(UserError, match=r"`single_word` of an added token.*\[E\].*`added_tokens`"):
        load_tokenizer(tmp_path)
    assert BertTokenizer.from_pretrained(tmp_path, added_tokens=[]).vocabulary == PIECES


def test_ids_of_a_post_processor_are_those_of_the_vocabulary(tmp_path):
    """`tokenizers` inserts the ids that it names, whatever the vocabulary says."""
    wordpiece, byte_pairs = wordpiece_definition(), bpe_definition(MERGES)
    wordpiece["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [7]
    byte_pairs["post_processor"]["cls"] = ["<s>", 7]
    for definition in (wordpiece, byte_pairs):
        with pytest.raises(UserError, match="`post_processor`"):
            load_tokenizer(write(tmp_path, definition))


@pytest.mark.usefixtures("eagerly")
def test_configuration_of_byte_pairs(tmp_path):
    """Matches transformers: `add_prefix_space` of tokenizer_config.json overrides the other."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    for is_set in (False, True):
        definition = bpe_definition(MERGES, add_prefix_space=not is_set)
        tokenizer = load_tokenizer(write(tmp_path, definition, add_prefix_space=is_set))
        other = tokenizers.Tokenizer.from_str(json.dumps(definition))
        other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=is_set)
        assert tokenizer(["he he"])["token_ids"].numpy().tolist() == [other.encode("he he").ids]
    for config in (
        {"additional_special_tokens": ["<e>"]},
        {"added_tokens_decoder": {"400": {"content": "<e>"}}},
        {"tokenizer_class": "MBartTokenizer"},
        {"sp_model_kwargs": {"enable_sampling": True}},
    ):
        with pytest.raises(UserError, match="<e>|no piece|tokenizer_class|sp_model"):
            load_tokenizer(write(tmp_path, definition, **config))


def test_tokens_at_both_ends(tmp_path):
    """The `post_processor` adds them; transformers 5.24 gives the ids that it says, too."""
    both, definition = {"add_bos_token": True, "add_eos_token": True}, bpe_definition(MERGES)
    expected = load_tokenizer(write(tmp_path, definition))
    tokenizer = load_tokenizer(write(tmp_path, definition, **both))
    assert tokenizer.get_config() == expected.get_config()
    for made, config in ((definition, {"add_bos_token": True}), (wordpiece_definition(), both)):
        with pytest.raises(UserError, match="`add_bos_token`"):
            load_tokenizer(write(tmp_path, made, **config))


@pytest.mark.parametrize(
    "model", [{"type": "Unigram", "vocab": [["a", 0]] * 200_001}, {"type": "BPE"}]
)
def test_another_kind_of_tokenizer_names_the_call_that_opens_it(model, tmp_path):
    """A vocabulary of XLM-R has more lists than other JSON files may have."""
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(ConfigError, match=rf"WordPiece.*{model['type']}.*load_tokenizer"):
        BertTokenizer.from_pretrained(tmp_path)
