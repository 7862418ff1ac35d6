"""The `tokenizer.json` of a tokenizer gives its ids, in `tokenizers` and when it is read."""

import json

import pytest

from bert_tf import BertTokenizer
from bert_tf.errors import UserError
from bert_tf.text import SubwordTokenizer
from bert_tf.text.unicode_tables import HUGGING_FACE
from tests.text.subwords import unigram_definition

pytestmark = pytest.mark.usefixtures("eagerly")

TEXTS = [
    "The good film.",
    "",
    "Él naïve 電影 good-bad",
    "a [MASK] film [SEP] b",
    "<e1>the</e1>x <user>film",
    "x" * 101,
    "bad\u200bfilm\tthe\x00 \ue000a ΑΣ",
]
PAIRS = ["bad.", "good", "", "the [MASK]", "a", "b", "c"]
OPTIONS = {
    "as read from Hugging Face": {"split_special_tokens": False},
    "special tokens are text": {},
    "cased": {"lowercase": False, "split_on_cjk": False, "max_input_chars_per_word": 3},
    "MPNet": {"separators": 2, "cls_token": "[MASK]", "mask_token": None},
    "added": {
        "additional_special_tokens": ["film"],
        "added_tokens": [
            {"content": "<user>", "rstrip": True},
            {"content": "<e1>", "special": True, "lstrip": True},
        ],
    },
}


def ids_of(tokenizer, texts, pairs=None):
    encoded = tokenizer(texts, pairs, ragged=True)
    return encoded["token_ids"].to_list(), encoded["segment_ids"].to_list()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_ids_of_tokenizers(options, tiny_vocabulary, tmp_path):
    tokenizer = BertTokenizer(tiny_vocabulary, character_rules=HUGGING_FACE, **options)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer.to_huggingface()), encoding="utf-8")
    mine = {name: tokenizer.get_config()[name] for name in ("split_special_tokens", "mask_token")}
    again = BertTokenizer.from_pretrained(tmp_path, lowercase=tokenizer.lowercase, **mine)
    for pairs in (None, PAIRS):
        assert ids_of(again, TEXTS, pairs) == ids_of(tokenizer, TEXTS, pairs)
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(path))
    for pairs in (None, PAIRS):
        rows = theirs.encode_batch(TEXTS if pairs is None else list(zip(TEXTS, pairs)))
        found = [row.ids for row in rows], [row.type_ids for row in rows]
        assert found == ids_of(tokenizer, TEXTS, pairs)


@pytest.mark.usefixtures("fake_jieba")
@pytest.mark.parametrize("option", [{"number_token": "[UNK]"}, {"segmenter": "jieba"}])
def test_rules_that_no_file_has(option, tiny_vocabulary):
    with pytest.raises(UserError, match=f"`{next(iter(option))}` must be None"):
        BertTokenizer(tiny_vocabulary, **option).to_huggingface()


def test_subwords():
    tokenizer = SubwordTokenizer(unigram_definition([("▁film", -1.0), ("▁", -2.0), ("s", -3.0)]))
    again = SubwordTokenizer(json.loads(json.dumps(tokenizer.to_huggingface())))
    assert again.get_config() == tokenizer.get_config()
