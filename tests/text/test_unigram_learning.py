"""Unigram vocabularies that sentencepiece learns: pieces, normalization, files, mistakes."""

import sys

import pytest

from bert_tf.errors import ConfigError, DataError, UserError
from bert_tf.text import SubwordTokenizer, learn_unigram, load_tokenizer
from bert_tf.text.vocabulary_learning import read_lines
from tests.text.subwords import assert_same, hugging_face

pytestmark = pytest.mark.usefixtures("eagerly")

SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["Low lower lowest, slow and Slowly.", "Él bebía ``café'' — 12,5 %"]
TEXTS += ["今天天气很好，今天很好"]
TEXTS = [f"{text} {index % 7}" for index in range(60) for text in TEXTS]
OTHERS = [*TEXTS[:3], "", "  ", "A slower [MASK] day", "天气 ｈｏｔ ẞ ǅ Å", "好" * 30]
OTHERS += ['he said "no"']


@pytest.fixture(scope="module", autouse=True)
def needed():
    pytest.importorskip("sentencepiece", reason="needs sentencepiece")


@pytest.fixture(scope="module")
def learned():
    return learn_unigram(TEXTS, 120, progress=False)


def test_pieces(learned):
    assert learned.vocabulary[:5] == SPECIAL
    assert 40 < learned.vocab_size <= 120
    assert len(set(learned.vocabulary)) == learned.vocab_size
    assert any("很好" in piece for piece in learned.vocabulary)
    assert learned.continues_word()[learned.token_to_id("y")]
    pieces = [piece.decode() for piece in learned.pieces(["LOW slow"])[0].numpy()]
    assert pieces == ["▁low", "▁slow"]


def test_ids_are_those_of_tokenizers(learned):
    pytest.importorskip("tokenizers", reason="needs tokenizers")
    theirs = hugging_face(learned.definition)
    for pairs in (None, OTHERS[::-1]):
        received = learned(OTHERS, pairs, ragged=True)
        encoded = theirs.encode_batch(OTHERS if pairs is None else list(zip(OTHERS, pairs)))
        assert_same(OTHERS, received["token_ids"].to_list(), [e.ids for e in encoded])
        assert_same(OTHERS, received["segment_ids"].to_list(), [e.type_ids for e in encoded])


@pytest.mark.parametrize(
    "options,text,expected",
    [
        ({}, "Él CAFÉ", "el cafe"),
        ({"strip_accents": False}, "Él CAFÉ", "él café"),
        ({"lowercase": False}, "Él Low", "Él Low"),
        ({"lowercase": False, "strip_accents": True}, "Él Low", "El Low"),
    ],
)
def test_text_is_normalized_as_it_was_for_learning(options, text, expected):
    """Characters that learning has not seen would be `<unk>`."""
    tokenizer = learn_unigram(TEXTS + ["CAFÉ"] * 9, 140, progress=False, **options)
    ids = tokenizer.tokenize([text])
    assert tokenizer.unk_token_id not in ids.values.numpy()
    assert tokenizer.detokenize(ids).numpy()[0].decode() == expected


def test_the_same_texts_give_the_same_tokenizer(learned, tmp_path):
    again = learn_unigram(iter(TEXTS), 120, progress=False)
    assert again.definition == learned.definition
    learned.save_pretrained(tmp_path)
    for opened in (load_tokenizer(tmp_path), SubwordTokenizer(tmp_path / "tokenizer.json")):
        assert opened.tokenize(OTHERS).to_list() == learned.tokenize(OTHERS).to_list()


def test_options():
    rare = [*TEXTS, "ж"]
    every = learn_unigram(rare, 150, character_coverage=1.0, num_unused=2, progress=False)
    assert every.vocabulary[5:7] == ["[unused0]", "[unused1]"]
    assert "ж" in "".join(every.vocabulary)
    most = learn_unigram(rare, 150, character_coverage=0.99, progress=False)
    assert "ж" not in "".join(most.vocabulary)
    long = "wort " * 2000  # sentencepiece leaves out what is longer than 4,192 bytes by default
    assert "▁wort" in learn_unigram([long, "b"], 20, progress=False).vocabulary


def test_mistakes(tmp_path, monkeypatch):
    for options, message in (
        ({"vocabulary_size": 0}, "`vocabulary_size` must be at least 1"),
        ({"num_unused": -1}, "`num_unused` must be at least 0"),
        ({"character_coverage": 0.0}, "`character_coverage` must be above 0 and at most 1"),
        ({"character_coverage": 1.5}, "`character_coverage` must be above 0 and at most 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            learn_unigram(TEXTS, **{"vocabulary_size": 120, **options})
    for texts, size in ((TEXTS, 12), ([], 12), (["", "  "], 12)):
        with pytest.raises(DataError, match=rf"enough for a vocabulary of vocabulary_size={size}"):
            learn_unigram(texts, size, progress=False)
    (tmp_path / "a.txt").write_bytes(b"good\nb\xffd\n")
    with pytest.raises(DataError, match="a.txt, line 2 must be UTF-8"):
        learn_unigram(read_lines([tmp_path / "a.txt"], progress=False), 40, progress=False)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UserError, match=r"pip install 'bert-tf\[unigram\]'"):
        learn_unigram(TEXTS, 120)
