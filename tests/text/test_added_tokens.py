"""Added tokens, compared with Hugging Face's `tokenizers`, in memory and in files."""

import copy
import json

import pytest
import tensorflow as tf

from bert_tf.errors import ConfigError, DataError
from bert_tf.text import BertTokenizer, SubwordTokenizer, load_tokenizer
from bert_tf.text.unicode_tables import unicode_data
from tests.text import fuzz, test_families
from tests.text.subwords import bpe_definition, hugging_face, unigram_definition
from tests.text.test_tokenizer_files import IDS, PIECES, wordpiece_definition, write

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")

ORDINARY = ["covid-19", "Zürich See", "##x", "a", "Ab"]
WHOLE = ["[E1]", "<user>"]
FLAGS = [
    {"content": "<left>", "lstrip": True},
    {"content": "<right>", "rstrip": True, "normalized": False},
    {"content": "Exact", "normalized": False},
    {"content": "Ça", "special": True, "normalized": True},
]
INSERTED = [*ORDINARY, *WHOLE, *(token["content"] for token in FLAGS)]
INSERTED += ["COVID-19", "zurich see", "zu\u0308rich", " <left> ", " <right> ", "aB", "[MASK]"]
INSERTED += ["EXACT", " [e1]", "covid -19", "Zürich  see", "ça", "cA\u0327", "xAby", "中a"]
INSERTED += ["co\0vid-19"]


def wordpiece(**normalizer):
    definition = wordpiece_definition()
    return {**definition, "normalizer": {**definition["normalizer"], **normalizer}}


DEFINITIONS = {
    "uncased": wordpiece(),
    "cased": wordpiece(lowercase=False),
    "accents": wordpiece(strip_accents=False),
    "no_ideographs": wordpiece(handle_chinese_chars=False),
    "byte_pairs": bpe_definition(test_families.MERGES),
    "unigram": unigram_definition(test_families.PIECES),
    "deberta_v2": test_families.deberta_v2(),
}


@pytest.fixture(scope="module", params=DEFINITIONS)
def both(request):
    definition = DEFINITIONS[request.param]
    theirs = hugging_face(definition)
    theirs.add_tokens(ORDINARY)
    theirs.add_special_tokens(WHOLE)
    for token in FLAGS:
        add = theirs.add_special_tokens if token.get("special") else theirs.add_tokens
        add([tokenizers.AddedToken(**token)])
    if definition["model"]["type"] != "WordPiece":
        tokenizer = SubwordTokenizer(definition)
    else:
        flags = definition["normalizer"]
        tokenizer = BertTokenizer(
            PIECES,
            lowercase=flags["lowercase"],
            strip_accents=flags["strip_accents"],
            split_on_cjk=flags["handle_chinese_chars"],
            max_input_chars_per_word=100,
            character_rules="huggingface",
            split_special_tokens=False,
        )
    before = tokenizer
    tokenizer = tokenizer.with_added_tokens(ORDINARY).with_added_tokens(WHOLE, special=True)
    assert before.vocab_size < tokenizer.vocab_size
    return theirs, tokenizer.with_added_tokens(FLAGS)


@pytest.fixture(scope="module")
def texts():
    marks = unicode_data().properties["mark"]
    (found,) = fuzz.batches(120, INSERTED)
    # Spans of a BertTokenizer include the marks after the last letter.
    return INSERTED + ["".join(c for c in text[:80] if not marks[ord(c)]) for text in found]


def assert_same(tokenizer, theirs, texts):
    encodings = theirs.encode_batch(texts)
    rows = tokenizer(texts, ragged=True)["token_ids"].to_list()
    encoding = tokenizer.encode(texts).ragged()
    starts, ends = (encoding[f"char_{name}"].to_list() for name in ("starts", "ends"))
    words = encoding["word_ids"].to_list()
    for row, expected in enumerate(encodings):
        assert rows[row] == expected.ids, ascii(texts[row])
        assert encoding["token_ids"].to_list()[row] == expected.ids
        spans = [*zip(starts[row], ends[row])]
        is_decomposed = any(unicode_data().properties["mark"][ord(char)] for char in texts[row])
        assert is_decomposed or spans == expected.offsets, ascii(texts[row])
        assert [None if word < 0 else word for word in words[row]] == expected.word_ids


@pytest.mark.usefixtures("eagerly")
def test_ids_and_spans(both, texts):
    theirs, tokenizer = both
    assert tokenizer.vocab_size == theirs.get_vocab_size()
    assert_same(tokenizer, theirs, texts)


@pytest.mark.usefixtures("eagerly")
def test_text_of_ids():
    """For normalized tokens, tokenizers returns the normalized text, and we return the token."""
    tokenizer = BertTokenizer(PIECES).with_added_tokens(WHOLE, special=True)
    theirs = hugging_face(wordpiece())
    theirs.add_special_tokens(WHOLE)
    theirs.decoder = tokenizers.decoders.WordPiece(cleanup=False)
    tokenizer = tokenizer.with_added_tokens(ORDINARY)
    theirs.add_tokens(ORDINARY)
    rows = tokenizer(["a [E1] b <user>x", "a##x b covid-19", ""], ragged=True)["token_ids"]
    for skip, option in ((True, "all"), (False, False)):
        expected = [theirs.decode(row, skip_special_tokens=skip) for row in rows.to_list()]
        assert [text.decode() for text in tokenizer.detokenize(rows, option).numpy()] == expected
    received = tokenizer.detokenize(tokenizer(["zurich SEE"])["token_ids"]).numpy()[0].decode()
    assert received == "Zürich See"


@pytest.mark.usefixtures("eagerly")
def test_files(both, texts, tmp_path):
    """Hugging Face's files, ours, and a copy from the configuration."""
    theirs, tokenizer = both
    theirs.save(str(tmp_path / "tokenizer.json"))
    own = load_tokenizer(tmp_path, split_special_tokens=False)
    assert own.vocabulary == tokenizer.vocabulary
    assert_same(own, theirs, texts[:40])
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = load_tokenizer(tmp_path / "saved")
    assert saved.get_config() == tokenizer.get_config()
    assert copy.deepcopy(tokenizer).get_config() == tokenizer.get_config()
    assert_same(saved, theirs, texts[:20])
    if isinstance(tokenizer, SubwordTokenizer):
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
        assert_same(saved, theirs, texts[:20])
    else:
        config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
        decoder = config["added_tokens_decoder"]
        theirs = {str(theirs.token_to_id(t["content"])): t["content"] for t in decoder.values()}
        assert {index: token["content"] for index, token in decoder.items()} == theirs
        assert (tmp_path / "saved" / "vocab.txt").read_text().split() == PIECES


@pytest.mark.parametrize(  # tests/text/test_tokenizer_layer.py exports added tokens of WordPiece
    "both", [pytest.param("uncased", marks=pytest.mark.full), "unigram"], indirect=True
)
def test_in_a_saved_model(both, tmp_path):
    _, tokenizer = both
    module = tf.Module()
    function = tf.function(lambda texts: tokenizer(texts)["token_ids"])
    module.tokens = function.get_concrete_function(tf.TensorSpec([None], tf.string))
    tf.saved_model.save(module, str(tmp_path))
    received = tf.saved_model.load(str(tmp_path)).tokens(tf.constant(INSERTED))
    assert received.numpy().tolist() == tokenizer(INSERTED)["token_ids"].numpy().tolist()


@pytest.mark.usefixtures("eagerly")
def test_older_files(tmp_path):
    """`added_tokens.json`, the only place of the ids in checkpoints of transformers 4."""
    added = {"[CLS]": 2, "[E1]": len(PIECES) + 1, "a-b": len(PIECES)}
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    config = {"additional_special_tokens": ["[E1]", "[New]"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.vocabulary == [*PIECES, "a-b", "[E1]", "[New]"]
    assert [token["special"] for token in tokenizer.added_tokens] == [False, True, True]
    assert tokenizer.pieces(["A-b[E1] [new]"]).to_list()[0][:2] == [b"a-b", b"[E1]"]
    added["a-b"] += 5
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    with pytest.raises(DataError, match=r"Added tokens must have the ids.*(\[E1\]|a-b)"):
        BertTokenizer.from_pretrained(tmp_path)


@pytest.mark.usefixtures("eagerly")
def test_a_definition_and_other_files_of_added_tokens(tmp_path):
    definition = bpe_definition(test_families.MERGES)
    size = len(definition["model"]["vocab"])
    decoder = {str(size): {"content": "<e>", "special": True}}
    tokenizer = load_tokenizer(write(tmp_path, definition, added_tokens_decoder=decoder))
    assert tokenizer.vocabulary[size:] == ["<e>"]
    assert tokenizer.pieces(["a<e>"]).to_list() == [[b"a", b"<e>"]]
    decoder = {"x": {"content": "<e>"}}
    with pytest.raises(DataError, match="`added_tokens_decoder` must have ids as keys"):
        load_tokenizer(write(tmp_path, definition, added_tokens_decoder=decoder))


@pytest.mark.parametrize(
    "tokens, message",
    [
        ("abc", "`tokens` must be a list of tokens"),
        ([3], "an added token|must be"),
        ([" "], "`content` of an added token must have text. Received: content=' '"),
        ([{"special": True}], "`content`"),
        ([{"content": "x", "lstrip": 1}], "`lstrip`"),
        ([{"content": "x", "single_word": True}], "`single_word` of an added token must be False"),
        ([f"<{number}>" for number in range(501)], "must be at most 500 tokens"),
    ],
)
def test_arguments(tokens, message):
    for tokenizer in (BertTokenizer(PIECES), SubwordTokenizer(DEFINITIONS["byte_pairs"])):
        with pytest.raises(ConfigError, match=message):
            tokenizer.with_added_tokens(tokens)


def test_known_tokens_change_nothing():
    tokenizer = BertTokenizer(PIECES).with_added_tokens(["[E]"], special=True)
    assert tokenizer.vocabulary == PIECES and tokenizer.additional_special_tokens == ["[E]"]
    assert tokenizer.with_added_tokens(["[E]", "[MASK]"]) is tokenizer
    assert tokenizer.token_to_id("[E]") == IDS["[E]"]
    with pytest.raises(Exception, match="`added_tokens` must be given to the constructor"):
        tokenizer.added_tokens = []
